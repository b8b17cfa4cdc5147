package ioam

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// TraceType is an IOAM-Trace-Type (RFC 9197 section 4.4.1): 24 bits that say which
// fields the data of a node has. Bit 0 of the RFC is the highest, 0x800000.
type TraceType uint32

// Fields of node data (RFC 9197 section 4.4.2).
const (
	HopLimitNodeID       TraceType = 1 << (23 - iota) // Hop_Lim and node_id
	InterfaceIDs                                      // ingress_if_id and egress_if_id
	TimestampSeconds                                  // when the node received the packet
	TimestampFraction                                 //
	TransitDelay                                      //
	NamespaceData                                     //
	QueueDepth                                        //
	ChecksumComplement                                //
	HopLimitNodeIDWide                                //
	InterfaceIDsWide                                  //
	NamespaceDataWide                                 //
	BufferOccupancy                                   //
	OpaqueStateSnapshot  TraceType = 1 << 1
	reservedType         TraceType = 1 << 0
	UndefinedFields      TraceType = 0x000FFC // bits 12 to 21
	DefinedFields        TraceType = 0xFFF002
	LoopbackTraceType              = HopLimitNodeID // the only one with the Loopback flag (RFC 9322 section 4)
	maxTraceType         TraceType = 1<<24 - 1
	wideFields                     = HopLimitNodeIDWide | InterfaceIDsWide | NamespaceDataWide
	nodeLenFields                  = maxTraceType &^ OpaqueStateSnapshot &^ reservedType
	undefinedFieldsCount           = 10
)

// Has reports whether all these fields are there.
func (t TraceType) Has(fields TraceType) bool { return t&fields == fields }

// NodeLen is the length of the data of a node in 4-byte units, without the opaque
// state snapshot (RFC 9197 section 4.4.1).
func (t TraceType) NodeLen() int {
	t &= nodeLenFields
	return bits.OnesCount32(uint32(t)) + bits.OnesCount32(uint32(t&wideFields))
}

// NodeSize is the length in bytes of the data of a node whose opaque state snapshot
// has snapshot bytes of data. They count only where the type has the snapshot.
func (t TraceType) NodeSize(snapshot int) int {
	n := t.NodeLen() * unit
	if t.Has(OpaqueStateSnapshot) {
		n += unit + snapshot
	}
	return n
}

// String is the type in hexadecimal, as RFCs and tools write it.
func (t TraceType) String() string { return fmt.Sprintf("%06X", uint32(t)) }

// Values of fields that a node cannot fill.
const (
	Unavailable16 = 1<<16 - 1 // interface id
	Unavailable24 = 1<<24 - 1 // node id, schema id
	Unavailable32 = 1<<32 - 1
	Unavailable56 = 1<<56 - 1 // wide node id
	Unavailable64 = 1<<64 - 1 // wide namespace data
)

// Hop is what one node wrote into a trace. Type says which fields are there. A field
// that the node could not fill has one of the Unavailable values.
type Hop struct {
	Type              TraceType
	HopLimit          uint8 // when the node sent the packet
	NodeID            uint32
	Ingress, Egress   uint16
	Seconds, Fraction uint32 // see TimeFormat
	TransitDelay      uint32 // nanoseconds; DelayOverflow for 2³¹ and more
	NamespaceData     uint32
	QueueDepth        uint32
	Complement        uint32

	HopLimitWide            uint8
	NodeIDWide              uint64
	IngressWide, EgressWide uint32
	NamespaceDataWide       uint64
	BufferOccupancy         uint32

	Undefined [undefinedFieldsCount]uint32 // of bits 12 to 21
	Snapshot  Snapshot
}

// Snapshot is an opaque state snapshot (RFC 9197 section 4.4.2.13). A node without one
// writes [NoSchema] and no data.
type Snapshot struct {
	Schema uint32 // 24 bits
	Data   []byte // a multiple of 4, at most 1020 bytes
}

// NoSchema is the schema id of a node that has no snapshot.
const NoSchema = Unavailable24

// field is a field of node data but the snapshot: 4 or 8 bytes.
type field struct {
	bit  TraceType
	size int
	get  func(*Hop) uint64
	set  func(*Hop, uint64)
}

// word is a field that is a single number of 32 bits.
func word(bit TraceType, at func(*Hop) *uint32) field {
	return field{
		bit, 4,
		func(h *Hop) uint64 { return uint64(*at(h)) },
		func(h *Hop, v uint64) { *at(h) = uint32(v) },
	}
}

// fields are in the order of the wire: from bit 0 on.
var fields = func() []field {
	all := []field{
		{
			HopLimitNodeID, 4,
			func(h *Hop) uint64 { return uint64(h.HopLimit)<<24 | uint64(h.NodeID&Unavailable24) },
			func(h *Hop, v uint64) { h.HopLimit, h.NodeID = uint8(v>>24), uint32(v&Unavailable24) },
		},
		{
			InterfaceIDs, 4,
			func(h *Hop) uint64 { return uint64(h.Ingress)<<16 | uint64(h.Egress) },
			func(h *Hop, v uint64) { h.Ingress, h.Egress = uint16(v>>16), uint16(v) },
		},
		word(TimestampSeconds, func(h *Hop) *uint32 { return &h.Seconds }),
		word(TimestampFraction, func(h *Hop) *uint32 { return &h.Fraction }),
		word(TransitDelay, func(h *Hop) *uint32 { return &h.TransitDelay }),
		word(NamespaceData, func(h *Hop) *uint32 { return &h.NamespaceData }),
		word(QueueDepth, func(h *Hop) *uint32 { return &h.QueueDepth }),
		word(ChecksumComplement, func(h *Hop) *uint32 { return &h.Complement }),
		{
			HopLimitNodeIDWide, 8,
			func(h *Hop) uint64 { return uint64(h.HopLimitWide)<<56 | h.NodeIDWide&Unavailable56 },
			func(h *Hop, v uint64) { h.HopLimitWide, h.NodeIDWide = uint8(v>>56), v&Unavailable56 },
		},
		{
			InterfaceIDsWide, 8,
			func(h *Hop) uint64 { return uint64(h.IngressWide)<<32 | uint64(h.EgressWide) },
			func(h *Hop, v uint64) { h.IngressWide, h.EgressWide = uint32(v>>32), uint32(v) },
		},
		{
			NamespaceDataWide, 8,
			func(h *Hop) uint64 { return h.NamespaceDataWide },
			func(h *Hop, v uint64) { h.NamespaceDataWide = v },
		},
		word(BufferOccupancy, func(h *Hop) *uint32 { return &h.BufferOccupancy }),
	}
	for i := range undefinedFieldsCount {
		all = append(all, word(BufferOccupancy>>(1+i), func(h *Hop) *uint32 { return &h.Undefined[i] }))
	}
	return all
}()

// AppendTo appends the data of the node: the fields of Type in their order.
func (h *Hop) AppendTo(b []byte) []byte {
	for _, f := range fields {
		switch {
		case !h.Type.Has(f.bit):
		case f.size == 8:
			b = binary.BigEndian.AppendUint64(b, f.get(h))
		default:
			b = binary.BigEndian.AppendUint32(b, uint32(f.get(h)))
		}
	}
	if h.Type.Has(OpaqueStateSnapshot) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(h.Snapshot.Data)/unit)<<24|h.Snapshot.Schema&NoSchema)
		b = append(b, h.Snapshot.Data...)
	}
	return b
}

// readHop reads the data of a node with these fields from the start of b, and says
// how long it is. It fails with [ErrNodeData] or [ErrSnapshot] where b is shorter; the
// error's offset is one in b.
func readHop(t TraceType, b []byte) (h Hop, size int, err error) {
	h.Type = t & (maxTraceType &^ reservedType)
	size = t.NodeSize(0)
	if len(b) < size {
		var p Problems
		p.add(0, ErrNodeData, "%d bytes are left, and a node has %d", len(b), size)
		return h, 0, p[0]
	}
	rest := b
	for _, f := range fields {
		if t.Has(f.bit) {
			v := uint64(binary.BigEndian.Uint32(rest))
			if f.size == 8 {
				v = binary.BigEndian.Uint64(rest)
			}
			f.set(&h, v)
			rest = rest[f.size:]
		}
	}
	if !t.Has(OpaqueStateSnapshot) {
		return h, size, nil
	}
	h.Snapshot.Schema = binary.BigEndian.Uint32(rest) & NoSchema
	n := int(rest[0]) * unit
	if rest = rest[unit:]; len(rest) < n {
		h.Snapshot.Data = rest[:len(rest):len(rest)]
		var p Problems
		p.add(size-unit, ErrSnapshot, "its Length says %d bytes, and %d are left", n, len(rest))
		return h, 0, p[0]
	}
	if n > 0 {
		h.Snapshot.Data = rest[:n:n]
	}
	return h, size + n, nil
}
