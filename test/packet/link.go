package packet

import "encoding/binary"

// EtherTypes (IEEE 802 numbers).
const (
	TypeIPv4 = 0x0800
	TypeARP  = 0x0806
	TypeTEB  = 0x6558 // transparent Ethernet bridging: a frame in GRE or Geneve
	TypeVLAN = 0x8100 // 802.1Q
	TypeIPv6 = 0x86dd
	TypeQinQ = 0x88a8 // 802.1ad
)

var (
	ethernet = &spec{name: "Ethernet", etherType: TypeTEB, proto: 143, next: &field{12, 2}}
	vlan     = &spec{name: "802.1Q tag", etherType: TypeVLAN, proto: none, next: &field{2, 2}}
	qinq     = &spec{name: "802.1ad tag", etherType: TypeQinQ, proto: none, next: &field{2, 2}}
	arp      = &spec{name: "ARP", etherType: TypeARP, proto: none}
)

// Addresses of the Ethernet header, both of the locally administered range.
var (
	SrcMAC = [6]byte{0x02, 0, 0, 0, 0, 0x01}
	DstMAC = [6]byte{0x02, 0, 0, 0, 0, 0x02}
)

// Eth begins a packet with an Ethernet header.
func Eth() Builder { return Builder{}.Eth() }

// Eth adds an Ethernet header: the inner frame of VXLAN, Geneve or GRE.
func (b Builder) Eth() Builder {
	head := make([]byte, 14)
	copy(head, DstMAC[:])
	copy(head[6:], SrcMAC[:])
	return b.add(ethernet, head)
}

// MAC sets the addresses of the Ethernet header.
func (b Builder) MAC(src, dst [6]byte) Builder {
	return b.patch("MAC addresses", func(head []byte) {
		copy(head, dst[:])
		copy(head[6:], src[:])
	}, ethernet)
}

// VLAN adds an 802.1Q tag; tci is the VLAN id with priority bits above it.
func (b Builder) VLAN(tci uint16) Builder { return b.add(vlan, tag(tci)) }

// QinQ adds an 802.1ad (service) tag.
func (b Builder) QinQ(tci uint16) Builder { return b.add(qinq, tag(tci)) }

func tag(tci uint16) []byte {
	return append(binary.BigEndian.AppendUint16(nil, tci), 0, 0)
}

// ARP adds a request of src for dst, both IPv4 (RFC 826).
func (b Builder) ARP(src, dst string) Builder {
	head := []byte{0, 1, 8, 0, 6, 4, 0, 1}
	head = append(head, SrcMAC[:]...)
	head = append(head, addr4(src)...)
	head = append(head, make([]byte, 6)...)
	head = append(head, addr4(dst)...)
	return b.add(arp, head)
}
