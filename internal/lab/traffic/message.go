package traffic

import (
	"encoding/binary"
	"fmt"
	"io"
)

// message is the head of requests and responses; padding follows up to its size.
type message struct {
	size   uint32 // of the whole, head included
	answer uint32 // request: size of the response that is wanted
	id     uint64
}

// MinMessage is the smallest request or response, bytes.
const MinMessage = 16

// maxMessage bounds what a server believes.
const maxMessage = 1 << 20

func (m message) encode() []byte {
	buf := make([]byte, m.size)
	binary.BigEndian.PutUint32(buf, m.size)
	binary.BigEndian.PutUint32(buf[4:], m.answer)
	binary.BigEndian.PutUint64(buf[8:], m.id)
	return buf
}

func decodeMessage(buf []byte) (message, error) {
	if len(buf) < MinMessage {
		return message{}, fmt.Errorf("message of %d bytes", len(buf))
	}
	m := message{
		size:   binary.BigEndian.Uint32(buf),
		answer: binary.BigEndian.Uint32(buf[4:]),
		id:     binary.BigEndian.Uint64(buf[8:]),
	}
	if m.size < MinMessage || m.size > maxMessage || m.answer > maxMessage {
		return message{}, fmt.Errorf("message says it has %d bytes and wants %d", m.size, m.answer)
	}
	return m, nil
}

// readMessage reads one message from a stream. io.EOF is the end between two.
func readMessage(r io.Reader) (message, error) {
	head := make([]byte, MinMessage)
	if _, err := io.ReadFull(r, head); err != nil {
		return message{}, err
	}
	m, err := decodeMessage(head)
	if err != nil {
		return message{}, err
	}
	if _, err := io.CopyN(io.Discard, r, int64(m.size)-MinMessage); err != nil {
		return message{}, fmt.Errorf("rest of message: %w", err)
	}
	return m, nil
}
