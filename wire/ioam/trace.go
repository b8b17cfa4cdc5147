package ioam

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// TraceFlags are the flags of a trace (RFC 9197 section 4.4.1, RFC 9322).
type TraceFlags uint8

// The flags.
const (
	Overflow      TraceFlags = 8 >> iota // a node had no space for its data
	Loopback                             // nodes send a truncated copy back to the source
	Active                               // the packet is a probe
	reservedFlags TraceFlags = 1
)

// String names the flags.
func (f TraceFlags) String() string {
	var names []string
	for _, n := range []struct {
		flag TraceFlags
		name string
	}{{Overflow, "overflow"}, {Loopback, "loopback"}, {Active, "active"}, {reservedFlags, "reserved"}} {
		if f&n.flag != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, "+")
}

const (
	traceHeaderSize = 8
	maxRemaining    = 127
	maxNodeLen      = 31

	// MaxTraceSpace is the most that the node data of one trace takes in an IPv6 option.
	MaxTraceSpace = 244
)

// Trace is the body of a pre-allocated or incremental trace (RFC 9197 section 4.4).
type Trace struct {
	Incremental bool
	Namespace   uint16
	NodeLen     uint8 // 5 bits, 4-byte units
	Flags       TraceFlags
	Remaining   uint8 // RemainingLen: 7 bits, 4-byte units
	Type        TraceType
	Reserved    uint8

	// Data is all behind the header of the trace. A pre-allocated one begins with
	// the free space, 4·Remaining bytes. The data of the newest node follows, that
	// of the oldest is the last.
	Data []byte
}

// NewTrace returns a pre-allocated trace without data of nodes and with this much free
// space, in bytes. It fails with [ErrRange] for a type of more than 24 bits, and a
// space that is not a multiple of 4 or exceeds [MaxTraceSpace].
func NewTrace(namespace uint16, t TraceType, space int) (*Trace, error) {
	switch {
	case t > maxTraceType:
		return nil, fmt.Errorf("%w: Trace-Type %v has 24 bits", ErrRange, t)
	case space%unit != 0 || space < 0 || space > MaxTraceSpace:
		return nil, fmt.Errorf("%w: trace space of %d bytes; it is a multiple of 4 up to %d", ErrRange, space, MaxTraceSpace)
	}
	return &Trace{
		Namespace: namespace, NodeLen: uint8(t.NodeLen()), Remaining: uint8(space / unit), Type: t, Data: make([]byte, space),
	}, nil
}

// NewIncrementalTrace is [NewTrace] for an incremental one: the option has no free
// space, and grows up to this much.
func NewIncrementalTrace(namespace uint16, t TraceType, space int) (*Trace, error) {
	trace, err := NewTrace(namespace, t, space)
	if err != nil {
		return nil, err
	}
	trace.Incremental, trace.Data = true, nil
	return trace, nil
}

// Kind implements [Body].
func (t *Trace) Kind() Kind {
	if t.Incremental {
		return IncrementalTrace
	}
	return PreallocatedTrace
}

// AppendTo implements [Body].
func (t *Trace) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, t.Namespace)
	b = binary.BigEndian.AppendUint16(b, uint16(t.NodeLen&maxNodeLen)<<11|uint16(t.Flags&15)<<7|uint16(t.Remaining&maxRemaining))
	b = binary.BigEndian.AppendUint32(b, uint32(t.Type&maxTraceType)<<8|uint32(t.Reserved))
	return append(b, t.Data...)
}

// traceHeader reads the first eight bytes of the body.
func traceHeader(b []byte) Trace {
	lengths := binary.BigEndian.Uint16(b[2:])
	word := binary.BigEndian.Uint32(b[4:])
	return Trace{
		Namespace: binary.BigEndian.Uint16(b), NodeLen: uint8(lengths >> 11),
		Flags: TraceFlags(lengths>>7) & 15, Remaining: uint8(lengths & maxRemaining),
		Type: TraceType(word >> 8), Reserved: uint8(word),
	}
}

// free is the length of the free space in bytes.
func (t *Trace) free() int {
	if t.Incremental {
		return 0
	}
	return int(t.Remaining) * unit
}

// Hops returns the data of the nodes in the order in which the packet passed them:
// the oldest first. Where the list is malformed it fails with [ErrRemainingLen],
// [ErrNodeLen], [ErrNodeData] or [ErrSnapshot], and the hops are those behind which the
// list is malformed, that is the newest ones. The error's offset is one in Data.
func (t *Trace) Hops() ([]Hop, error) {
	var p Problems
	at := t.free()
	switch {
	case at > len(t.Data):
		p.add(0, ErrRemainingLen, "it says %d free bytes, and the option has %d", at, len(t.Data))
		return nil, p[0]
	case int(t.NodeLen) != t.Type.NodeLen():
		p.add(at, ErrNodeLen, "it is %d, and Trace-Type %v takes %d", t.NodeLen, t.Type, t.Type.NodeLen())
		return nil, p[0]
	}
	if t.Type.NodeSize(0) == 0 {
		return nil, nil
	}
	var hops []Hop
	var failed error
	for at < len(t.Data) {
		h, size, err := readHop(t.Type, t.Data[at:])
		if err != nil {
			e := err.(*Error)
			failed = &Error{Offset: at + e.Offset, Err: e.Err}
			break
		}
		hops = append(hops, h)
		at += size
	}
	slices.Reverse(hops)
	return hops, failed
}

// trace reads a trace.
func (r *reader) trace(incremental bool) *Trace {
	if !r.has(traceHeaderSize, "the header of a trace") {
		return nil
	}
	t := traceHeader(r.body)
	t.Incremental, t.Data = incremental, r.body[traceHeaderSize:]
	p := r.problems
	if want := t.Type.NodeLen(); int(t.NodeLen) != want {
		p.add(r.at+2, ErrNodeLen, "it is %d, and Trace-Type %v takes %d", t.NodeLen, t.Type, want)
	}
	if t.Flags&reservedFlags != 0 {
		p.add(r.at+2, ErrReserved, "the lowest flag of the trace")
	}
	if t.Flags&Loopback != 0 && t.Type != LoopbackTraceType {
		p.add(r.at+2, ErrLoopback, "it is %v", t.Type)
	}
	if t.free() > len(t.Data) {
		p.add(r.at+3, ErrRemainingLen, "it says %d free bytes, and the option has %d", t.free(), len(t.Data))
	}
	if u := t.Type & UndefinedFields; u != 0 {
		p.add(r.at+4, ErrUndefined, "%v of Trace-Type %v", u, t.Type)
	}
	if t.Type&reservedType != 0 {
		p.add(r.at+6, ErrReserved, "the lowest bit of Trace-Type %v", t.Type)
	}
	if t.Reserved != 0 {
		p.add(r.at+7, ErrReserved, "byte behind Trace-Type is %02X", t.Reserved)
	}
	r.list(&t)
	return &t
}

// list notes what is wrong with the node data list alone.
func (r *reader) list(t *Trace) {
	at := r.at + traceHeaderSize
	if n := len(t.Data) % unit; n != 0 {
		r.problems.add(at+len(t.Data)-n, ErrLength, "%d bytes of node data, and a multiple of 4 is required", len(t.Data))
		return
	}
	if t.Type.NodeSize(0) == 0 && t.free() < len(t.Data) {
		r.problems.add(at+t.free(), ErrNodeData, "%d bytes of node data, and Trace-Type %v has no fields", len(t.Data)-t.free(), t.Type)
		return
	}
	_, err := t.Hops()
	if e, ok := err.(*Error); ok && int(t.NodeLen) == t.Type.NodeLen() && t.free() <= len(t.Data) {
		*r.problems = append(*r.problems, &Error{Offset: at + e.Offset, Err: e.Err})
	}
}
