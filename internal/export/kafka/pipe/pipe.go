// Package pipe is what the agent and waymark-kafka say to each other, over standard input and output of the latter. Input and output:
// messages. Callers: package kafka, package producer.
//
// The agent sends a configuration and an interval; the program answers when the interval is committed, or what went wrong.
package pipe

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Kinds of messages.
const (
	Configure byte = 'c' // Configuration, as JSON; it is that of all intervals that follow
	Interval  byte = 'i' // a frame (package frame)
	Answered  byte = 'a' // Answer, as JSON
)

// Most is how many bytes a message may have.
const Most = 64<<20 + 64

// SocketFile is the file descriptor at which the program asks for sockets.
const SocketFile = 3

// Configuration has secrets, too: it is in no command line, and in no file.
type Configuration struct {
	Version     string   `json:"version"` // of the agent
	Host        string   `json:"host"`
	Sampling    uint32   `json:"sampling"`
	Brokers     []string `json:"brokers"`
	Topic       string   `json:"topic"`
	ID          string   `json:"id"` // transactional id, and name of the group
	Format      string   `json:"format"`
	Compression string   `json:"compression"`
	TLS         bool     `json:"tls"`
	CA          []byte   `json:"ca"` // PEM
	Cert        []byte   `json:"cert"`
	Key         []byte   `json:"key"`
	SASL        string   `json:"sasl"` // mechanism; empty: none
	User        string   `json:"user"`
	Password    string   `json:"password"`
}

// Answer says what became of an interval.
type Answer struct {
	Run     uint64 `json:"run"`
	Number  uint64 `json:"number"`
	Error   string `json:"error"`   // empty: it is committed
	Refused string `json:"refused"` // why no repetition helps; empty: it may
}

const head = 1 + 4

// Write sends a message.
func Write(to io.Writer, kind byte, b []byte) error {
	h := [head]byte{kind}
	binary.BigEndian.PutUint32(h[1:], uint32(len(b)))
	if _, err := to.Write(h[:]); err != nil {
		return err
	}
	_, err := to.Write(b)
	return err
}

// WriteJSON sends a value.
func WriteJSON(to io.Writer, kind byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return Write(to, kind, b)
}

// Read receives a message. io.EOF: the other end closed the pipe between two.
func Read(from io.Reader) (kind byte, b []byte, err error) {
	var h [head]byte
	if _, err := io.ReadFull(from, h[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(h[1:])
	if n > Most {
		return 0, nil, fmt.Errorf("a message of %d bytes: at most %d are allowed", n, Most)
	}
	b = make([]byte, n)
	if _, err := io.ReadFull(from, b); err != nil {
		return 0, nil, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return h[0], b, nil
}
