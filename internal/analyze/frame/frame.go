// Package frame is how an agent hands intervals on to an analyzer: those of the log of package disk, each with its identity.
// Input and output: bytes. Callers: exporter analyzer, which keeps them in files and sends them, and package analyze.
package frame

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"
)

// Of requests between both. An analyzer takes what agents of the version before its own send, too: frames change only together
// with Version, and what they carry has a version of its own (package store).
const (
	Version       = "1"
	VersionHeader = "Waymark-Push"
	AgentHeader   = "Waymark-Version" // of the agent's binary
	NowHeader     = "Waymark-Now"     // the agent's clock, in nanoseconds since 1970
	LostHeader    = "Waymark-Lost"    // records that the agent lost before they reached it, since its run began
	// SamplingHeader is flow.sampling of the agent: one packet in so many is counted.
	SamplingHeader = "Waymark-Sampling"
	// TripHeader is what the request before took, less Answer.Took, in nanoseconds: the clocks of both differ by no more than what it
	// says of them, and this.
	TripHeader   = "Waymark-Trip"
	ReasonHeader = "Waymark-Reason" // why a request was refused: one of the reasons below
	Path         = "/push/v1"
	TopologyPath = "/topology/v1"
	JoinPath     = "/join/v1"
)

// Reasons that an agent acts on.
const (
	ReasonOther   = "other_interval" // the identity belongs to another interval: the agent goes on as another run
	ReasonDamaged = "damaged"        // the bytes are not what was sent
)

// Most is how many bytes a frame may have, and MostRequest how many a request has, unless its only frame is larger.
const (
	Most        = 64 << 20
	MostRequest = 4 << 20
)

// MostTopology is how many bytes the topology of a host may have, compressed.
const MostTopology = 1 << 20

// Frame is an interval on its way.
type Frame struct {
	Boot, Sequence uint64 // see disk.Identity
	Rows           uint32
	Sum            uint32 // checksum of all of it
	Payload        []byte // of store.Encoder
}

// Head is how many bytes are before the payload: length and checksum, and what is summed up.
const Head = 4 + 4 + 8 + 8 + 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Begin makes space for what Finish fills in; the payload follows.
func Begin(b []byte) []byte { return append(b, make([]byte, Head)...) }

// Finish completes the only frame in b.
func Finish(b []byte, boot, sequence uint64, rows uint32) {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-8))
	binary.LittleEndian.PutUint64(b[8:], boot)
	binary.LittleEndian.PutUint64(b[16:], sequence)
	binary.LittleEndian.PutUint32(b[24:], rows)
	binary.LittleEndian.PutUint32(b[4:], Checksum(b[8:]))
}

// Checksum is what frames and topologies are recognized by.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// ErrDamaged says that bytes are no frame.
var ErrDamaged = errors.New("the bytes of an interval are not what was written")

// Next is the first frame of b, and what follows it.
func Next(b []byte) (f Frame, rest []byte, err error) {
	if len(b) < Head {
		return f, nil, ErrDamaged
	}
	n := uint64(binary.LittleEndian.Uint32(b)) + 8
	if n < Head || n > uint64(len(b)) || n > Most {
		return f, nil, ErrDamaged
	}
	one := b[:n]
	f = Frame{
		Boot: binary.LittleEndian.Uint64(one[8:]), Sequence: binary.LittleEndian.Uint64(one[16:]), Rows: binary.LittleEndian.Uint32(one[24:]),
		Sum: binary.LittleEndian.Uint32(one[4:]), Payload: one[Head:],
	}
	if Checksum(one[8:]) != f.Sum || f.Sequence == 0 {
		return f, nil, ErrDamaged
	}
	return f, b[n:], nil
}

// Answer is what an analyzer says of a request.
type Answer struct {
	Kept int `json:"kept"` // frames from the first that it has now, or had before
	// Topology is the checksum of what it has of the host; 0: nothing; absent: it takes none.
	Topology *uint32 `json:"topology,omitempty"`
	// Took is how long it worked on the request, from its head on.
	Took time.Duration `json:"took_ns,omitempty"`
}

// Join is what a host sends to become one of an analyzer, and Joined the answer.
type Join struct {
	Token   string `json:"token"`
	Request string `json:"request"` // a certificate signing request, PEM
}

// Joined is the certificate of a host.
type Joined struct {
	Name        string `json:"name"`
	Certificate string `json:"certificate"` // PEM
	CA          string `json:"ca"`          // PEM
}
