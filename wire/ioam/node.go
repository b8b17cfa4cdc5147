package ioam

import (
	"encoding/binary"
	"slices"
	"time"
)

// Node is a transit node (RFC 9197 section 4.4): the reference of how an option is
// updated. The zero value is a node without ids that knows namespace 0 only.
type Node struct {
	ID         uint32 // 24 bits
	IDWide     uint64 // 56 bits
	Format     TimeFormat
	Namespaces map[uint16]Namespace

	// ChecksumNeutral makes the node fill the checksum complement, so that no sum of
	// 16-bit words over the option changes; else the field is not available.
	ChecksumNeutral bool
}

// Namespace is what a node writes into traces of a namespace.
type Namespace struct {
	Data     uint32
	DataWide uint64
	Schema   *Snapshot // nil: none
}

// unconfigured is namespace 0, which every node knows (RFC 9197 section 4.3).
var unconfigured = Namespace{Data: Unavailable32, DataWide: Unavailable64}

// namespace returns a namespace the node knows.
func (n *Node) namespace(id uint16) (Namespace, bool) {
	ns, ok := n.Namespaces[id]
	if !ok && id == 0 {
		return unconfigured, true
	}
	return ns, ok
}

// Passage is what a node knows of a packet on its way through. [NewPassage] returns
// one in which nothing but the hop limit is available.
type Passage struct {
	Disabled                bool  // the interface that received it ignores IOAM
	HopLimit                uint8 // when the packet leaves
	Ingress, Egress         uint16
	IngressWide, EgressWide uint32
	Received                time.Time // zero: not available
	Delay                   time.Duration
	QueueDepth              uint32
	BufferOccupancy         uint32
}

// NewPassage returns a passage in which only the hop limit is available.
func NewPassage(hopLimit uint8) Passage {
	return Passage{
		HopLimit: hopLimit, Delay: -1,
		Ingress: Unavailable16, Egress: Unavailable16, IngressWide: Unavailable32, EgressWide: Unavailable32,
		QueueDepth: Unavailable32, BufferOccupancy: Unavailable32,
	}
}

// Verdict is what a node does with a trace option.
type Verdict uint8

// The verdicts, in the order of the checks that lead to them.
const (
	NotTrace         Verdict = iota // the option is not a trace: untouched
	Misaligned                      // packet dropped
	InterfaceIgnored                // the interface ignores IOAM: untouched
	TooShort                        // RemainingLen or the header exceeds the option: packet dropped
	NodeLenWrong                    // NodeLen does not fit Trace-Type: packet dropped
	NamespaceUnknown                // untouched
	OverflowBefore                  // Overflow was set already: untouched
	OverflowSet                     // no space: only Overflow was set
	Filled                          // the data of the node was written
)

var verdictNames = [...]string{
	NotTrace: "not a trace", Misaligned: "misaligned", InterfaceIgnored: "interface ignores IOAM", TooShort: "too short",
	NodeLenWrong: "wrong NodeLen", NamespaceUnknown: "unknown namespace", OverflowBefore: "overflow before",
	OverflowSet: "overflow set", Filled: "filled",
}

// String describes the verdict.
func (v Verdict) String() string { return verdictNames[v] }

// Drops reports whether the packet is dropped.
func (v Verdict) Drops() bool { return v == Misaligned || v == TooShort || v == NodeLenWrong }

// Update returns the option as the node passes it on, and why. The option is a whole
// TLV, from its type on, and at this offset in its header; it is returned as it is unless the
// verdict is [OverflowSet] or [Filled], and never changed itself. A pre-allocated trace
// keeps its length; an incremental one grows by the data of the node.
func (n *Node) Update(option []byte, offset int, p Passage) ([]byte, Verdict) {
	v, incremental := n.check(option, offset, p)
	if v != Filled {
		return option, v
	}
	body := option[headerSize:]
	t := traceHeader(body)
	hop := n.hop(t, p)
	size := t.Type.NodeSize(len(hop.Snapshot.Data))
	// Where RemainingLen is 0, nothing fits, not even a node without fields.
	if t.Remaining == 0 || size > int(t.Remaining)*unit || incremental && len(option)+size > 2+maxData {
		return overflowed(option), OverflowSet
	}
	out := slices.Clone(option)
	at := headerSize + traceHeaderSize
	if incremental {
		out = slices.Insert(out, at, make([]byte, size)...)
		out[1] += uint8(size)
	} else {
		at += int(t.Remaining)*unit - size
	}
	lengths := binary.BigEndian.Uint16(out[headerSize+2:])
	binary.BigEndian.PutUint16(out[headerSize+2:], lengths-uint16(size/unit))
	copy(out[at:], hop.AppendTo(nil))
	if n.ChecksumNeutral && t.Type.Has(ChecksumComplement) {
		hop.Complement = 0
		copy(out[at:], hop.AppendTo(nil))
		hop.Complement = uint32(difference(option, out))
		copy(out[at:], hop.AppendTo(nil))
	}
	return out, Filled
}

// check takes the checks in their order. It returns [Filled] where all pass.
func (n *Node) check(option []byte, offset int, p Passage) (v Verdict, incremental bool) {
	k, ok := Option{Raw: option}.Kind()
	incremental = k == IncrementalTrace
	switch {
	case len(option) == 0 || option[0] != OptionMutable:
		return NotTrace, false
	case offset%unit != 0: // before the kind is read
		return Misaligned, false
	case p.Disabled:
		return InterfaceIgnored, false
	case !ok:
		return TooShort, false
	case k != PreallocatedTrace && !incremental:
		return NotTrace, false
	case len(option) < headerSize+traceHeaderSize:
		return TooShort, false
	}
	t := traceHeader(option[headerSize:])
	t.Incremental = incremental
	_, known := n.namespace(t.Namespace)
	switch {
	case len(option) < headerSize+traceHeaderSize+t.free():
		return TooShort, false
	case int(t.NodeLen) != t.Type.NodeLen():
		return NodeLenWrong, false
	case !known:
		return NamespaceUnknown, false
	case t.Flags&Overflow != 0:
		return OverflowBefore, false
	}
	return Filled, incremental
}

// hop is the data that the node writes into a trace.
func (n *Node) hop(t Trace, p Passage) Hop {
	ns, _ := n.namespace(t.Namespace)
	h := Hop{
		Type:     t.Type &^ reservedType,
		HopLimit: p.HopLimit, NodeID: n.ID, HopLimitWide: p.HopLimit, NodeIDWide: n.IDWide,
		Ingress: p.Ingress, Egress: p.Egress, IngressWide: p.IngressWide, EgressWide: p.EgressWide,
		Seconds: Unavailable32, Fraction: Unavailable32, TransitDelay: transitDelay(p.Delay),
		NamespaceData: ns.Data, NamespaceDataWide: ns.DataWide,
		QueueDepth: p.QueueDepth, BufferOccupancy: p.BufferOccupancy, Complement: Unavailable32,
		Snapshot: Snapshot{Schema: NoSchema},
	}
	if !p.Received.IsZero() {
		h.Seconds, h.Fraction = n.Format.Split(p.Received)
	}
	for i := range h.Undefined {
		h.Undefined[i] = Unavailable32
	}
	if ns.Schema != nil {
		h.Snapshot = *ns.Schema
	}
	return h
}

// transitDelay is the field for a delay; a negative one is not available.
func transitDelay(d time.Duration) uint32 {
	switch {
	case d < 0:
		return Unavailable32
	case d >= DelayOverflow:
		return DelayOverflow
	}
	return uint32(d)
}

// difference is the one's complement sum of 16-bit words of before less that of after,
// which has an even length too; 0 is 0, never FFFF.
func difference(before, after []byte) uint16 {
	sum := uint64(0)
	for i := 0; i+1 < len(before); i += 2 {
		sum += uint64(binary.BigEndian.Uint16(before[i:]))
	}
	for i := 0; i+1 < len(after); i += 2 {
		sum += uint64(^binary.BigEndian.Uint16(after[i:]))
	}
	return uint16(sum % 0xFFFF)
}
