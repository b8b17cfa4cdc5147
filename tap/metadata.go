package tap

import (
	"encoding/binary"
	"unsafe"
)

// MetadataSize is the length of what is in front of a frame.
const MetadataSize = 32

// Version1 is the version of the layout: struct hints_meta of bpf/hints/meta.h.
const Version1 = 0x31484d57

// Source tells where a hint comes from.
type Source uint8

// Sources.
const (
	Absent   Source = iota // there is none
	Hardware               // the network card
	Driver                 // software: the driver of a virtual interface
	Computed               // Waymark's program
)

// String is the name of a source, as waymark capture has it.
func (s Source) String() string {
	if names := [...]string{"absent", "hardware", "driver", "computed"}; int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// Verdict is what the rules of the gate said of a packet.
type Verdict uint8

// Verdicts.
const (
	Undecided Verdict = iota // it met no rules at XDP
	Passed
	Tapped // it passed, and a tap rule selected it
)

// Metadata is what was known of a packet at XDP. The value of an absent hint means nothing.
type Metadata struct {
	Time                               uint64 // of receipt, ns of CLOCK_MONOTONIC
	Hash                               uint32
	HashL4                             bool // ports are in the hash
	VLANProto, VLANTCI                 uint16
	TimeSource, HashSource, VLANSource Source
	Verdict                            Verdict
}

// ParseMetadata reads the bytes in front of a frame. False: they are none of a known version.
func ParseMetadata(b []byte) (m Metadata, ok bool) {
	if len(b) < MetadataSize || binary.NativeEndian.Uint32(b[28:]) != Version1 {
		return m, false
	}
	return Metadata{
		Time: binary.NativeEndian.Uint64(b), Hash: binary.NativeEndian.Uint32(b[8:]), HashL4: b[19] != 0,
		VLANProto: binary.BigEndian.Uint16(b[12:]), VLANTCI: binary.NativeEndian.Uint16(b[14:]),
		TimeSource: Source(b[16]), HashSource: Source(b[17]), VLANSource: Source(b[18]), Verdict: Verdict(b[20]),
	}, true
}

// queue is how much a socket takes: struct hints_queue of bpf/hints/abi.h.
type queue struct {
	sent, full, tooLong uint64 // written by the program
	limit, room, most   uint32
	_                   uint32
	returned            uint64
	_                   [2]uint64
}

const queueSize = int(unsafe.Sizeof(queue{}))
