package packet

import "encoding/binary"

// UDP destination ports of the tunnels (IANA).
const (
	PortVXLAN  = 4789
	PortGeneve = 6081
)

var gre = &spec{name: "GRE", proto: ProtoGRE, next: &field{2, 2}}

// greSummed is GRE with the checksum over header and payload (RFC 2784, 2.5).
var greSummed = &spec{
	name: "GRE", proto: ProtoGRE, next: &field{2, 2},
	sum:     &field{4, 2},
	compute: func(c covered) uint64 { return uint64(internetSum(c.head, c.payload)) },
}

var (
	vxlan  = &spec{name: "VXLAN", proto: none}
	geneve = &spec{
		name: "Geneve", proto: none, next: &field{2, 2},
		lengths: func(head []byte, _ int) { head[0] = byte(len(head)/4 - 2) },
	}
)

// GRE bits of the first bytes (RFC 2784, 2890).
const (
	GREChecksum = 0x8000
	GRERouting  = 0x4000
	GREKey      = 0x2000
	GRESequence = 0x1000
)

// GRE adds a GRE header. flags choose the optional fields, which hold key and seq.
func (b Builder) GRE(flags uint16, key, seq uint32) Builder {
	head := binary.BigEndian.AppendUint16(nil, flags)
	head = append(head, 0, 0)
	kind := gre
	if flags&(GREChecksum|GRERouting) != 0 {
		head = append(head, 0, 0, 0, 0)
	}
	if flags&GREChecksum != 0 {
		kind = greSummed
	}
	if flags&GREKey != 0 {
		head = binary.BigEndian.AppendUint32(head, key)
	}
	if flags&GRESequence != 0 {
		head = binary.BigEndian.AppendUint32(head, seq)
	}
	return b.add(kind, head)
}

// VXLAN adds a VXLAN header (RFC 7348) with the I flag set.
func (b Builder) VXLAN(vni uint32) Builder {
	head := []byte{0x08, 0, 0, 0}
	return b.add(vxlan, binary.BigEndian.AppendUint32(head, vni<<8))
}

// Geneve adds a Geneve header (RFC 8926). For its options see Options.
func (b Builder) Geneve(vni uint32) Builder {
	return b.add(geneve, binary.BigEndian.AppendUint32(make([]byte, 4), vni<<8))
}
