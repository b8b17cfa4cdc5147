package packet

import "encoding/binary"

// IPv6 extension headers (RFC 8200, 6275, 7401, 5533, 4302).
var (
	hopByHop = extension("Hop-by-Hop Options", 0)
	routing  = extension("Routing", 43)
	destOpts = extension("Destination Options", ProtoDestOpts)
	shim6    = extension("Shim6", 140)
	fragment = &spec{name: "Fragment", proto: 44, next: &field{0, 1}, last: ProtoNoNext}
	ah       = &spec{
		name: "AH", proto: ProtoAH, next: &field{0, 1}, last: ProtoNoNext,
		lengths: func(head []byte, _ int) { head[1] = byte(len(head)/4 - 2) },
	}
	mobility = summed(extension("Mobility", 135))
	hip      = summed(extension("HIP", 139))
)

func extension(name string, proto int) *spec {
	return &spec{
		name: name, proto: proto, next: &field{0, 1}, last: ProtoNoNext,
		lengths: func(head []byte, _ int) { head[1] = byte(len(head)/8 - 1) },
	}
}

// summed is s with a checksum over itself and a pseudo-header (RFC 6275, 6.1.1;
// RFC 7401, 5.1.1), which in both stands at byte 4.
func summed(s *spec) *spec {
	s.sum = &field{4, 2}
	s.compute = func(c covered) uint64 {
		c.payload = nil
		return uint64(c.transportSum())
	}
	return s
}

// Option is one TLV of a Hop-by-Hop or Destination Options header.
type Option struct {
	Type byte
	Data []byte
}

// HopByHop adds a Hop-by-Hop Options header, padded to a multiple of 8 bytes.
func (b Builder) HopByHop(opts ...Option) Builder { return b.add(hopByHop, options(opts)) }

// DestOpts adds a Destination Options header, padded likewise.
func (b Builder) DestOpts(opts ...Option) Builder { return b.add(destOpts, options(opts)) }

// options lays out TLVs behind next header and length, with Pad1 or PadN
// (RFC 8200, 4.2) at the end.
func options(opts []Option) []byte {
	head := make([]byte, 2)
	for _, o := range opts {
		head = append(head, o.Type, byte(len(o.Data)))
		head = append(head, o.Data...)
	}
	switch n := (8 - len(head)%8) % 8; n {
	case 0:
	case 1:
		head = append(head, 0)
	default:
		head = append(head, 1, byte(n-2))
		head = append(head, make([]byte, n-2)...)
	}
	return head
}

// Routing adds a Segment Routing Header (type 4, RFC 8754) with the segments
// visited already: Segments Left is 0, so the IPv6 destination is the last one.
func (b Builder) Routing(segments ...string) Builder {
	head := []byte{0, 0, 4, 0, byte(max(len(segments)-1, 0)), 0, 0, 0}
	for _, s := range segments {
		head = append(head, addr6(s)...)
	}
	return b.add(routing, head)
}

// Fragment adds a Fragment header. offset is in bytes, a multiple of 8. To cut
// a packet into fragments, see Split.
func (b Builder) Fragment(offset int, more bool, id uint32) Builder {
	head := make([]byte, 8)
	putFragment6(head, offset, more, id)
	return b.add(fragment, head)
}

func putFragment6(head []byte, offset int, more bool, id uint32) {
	v := uint16(offset) &^ 7
	if more {
		v |= 1
	}
	binary.BigEndian.PutUint16(head[2:], v)
	binary.BigEndian.PutUint32(head[4:], id)
}

// AH adds an Authentication Header with an integrity check value of icv bytes,
// which should be a multiple of 4, in IPv6 such that the header is one of 8.
func (b Builder) AH(spi, seq uint32, icv int) Builder {
	head := make([]byte, 12+icv)
	binary.BigEndian.PutUint32(head[4:], spi)
	binary.BigEndian.PutUint32(head[8:], seq)
	return b.add(ah, head)
}

// Mobility adds a Binding Refresh Request (RFC 6275, 6.1.2).
func (b Builder) Mobility() Builder { return b.add(mobility, make([]byte, 8)) }

// HIP adds a Host Identity Protocol header: a CLOSE packet without parameters.
func (b Builder) HIP() Builder {
	head := make([]byte, 40)
	head[2] = 18
	head[3] = 2<<4 | 1
	return b.add(hip, head)
}

// Shim6 adds a Shim6 payload extension header with a context tag (RFC 5533, 5.2).
func (b Builder) Shim6(context uint32) Builder {
	head := make([]byte, 8)
	head[2] = 0x80
	binary.BigEndian.PutUint32(head[4:], context)
	return b.add(shim6, head)
}

// HdrExtLen overrides the length byte of an extension header: units of 8
// bytes beyond the first 8; for AH, units of 4 bytes less 2.
func (b Builder) HdrExtLen(v uint8) Builder {
	return b.patch("Hdr Ext Len", func(head []byte) { head[1] = v },
		hopByHop, routing, destOpts, shim6, ah, mobility, hip)
}
