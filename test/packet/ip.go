package packet

import (
	"encoding/binary"
	"net/netip"
)

// Protocol numbers that tests name (IANA).
const (
	ProtoICMP     = 1
	ProtoIPIP     = 4
	ProtoTCP      = 6
	ProtoUDP      = 17
	ProtoDCCP     = 33
	ProtoIPv6     = 41
	ProtoGRE      = 47
	ProtoESP      = 50
	ProtoAH       = 51
	ProtoICMPv6   = 58
	ProtoNoNext   = 59
	ProtoDestOpts = 60
	ProtoSCTP     = 132
	ProtoUDPLite  = 136
	ProtoTest     = 253 // for experiments (RFC 3692)
)

var ipv4 = &spec{
	name: "IPv4", etherType: TypeIPv4, proto: ProtoIPIP, next: &field{9, 1}, last: ProtoTest,
	lengths: func(head []byte, payload int) {
		head[0] = 4<<4 | byte(len(head)/4)
		binary.BigEndian.PutUint16(head[2:], uint16(len(head)+payload))
	},
	sum:     &field{10, 2},
	compute: func(c covered) uint64 { return uint64(internetSum(c.head)) },
}

var ipv6 = &spec{
	name: "IPv6", etherType: TypeIPv6, proto: ProtoIPv6, next: &field{6, 1}, last: ProtoNoNext,
	lengths: func(head []byte, payload int) { binary.BigEndian.PutUint16(head[4:], uint16(payload)) },
}

// IPv4 begins a packet without a link header.
func IPv4(src, dst string) Builder { return Builder{}.IPv4(src, dst) }

// IPv6 begins a packet without a link header.
func IPv6(src, dst string) Builder { return Builder{}.IPv6(src, dst) }

// IPv4 adds an IPv4 header with TTL 64, without options, not to be fragmented.
func (b Builder) IPv4(src, dst string) Builder {
	head := make([]byte, 12, 20)
	head[6] = 0x40
	head[8] = 64
	head = append(head, addr4(src)...)
	head = append(head, addr4(dst)...)
	return b.add(ipv4, head)
}

// IPv6 adds an IPv6 header with hop limit 64.
func (b Builder) IPv6(src, dst string) Builder {
	head := make([]byte, 8, 40)
	head[0] = 6 << 4
	head[7] = 64
	head = append(head, addr6(src)...)
	head = append(head, addr6(dst)...)
	return b.add(ipv6, head)
}

// TTL sets the TTL or hop limit.
func (b Builder) TTL(v uint8) Builder {
	return b.change("TTL", func(l *layer) {
		if l.spec == ipv4 {
			l.head[8] = v
		} else {
			l.head[7] = v
		}
	}, ipv4, ipv6)
}

// TOS sets the type of service or traffic class: DSCP<<2 | ECN.
func (b Builder) TOS(v uint8) Builder {
	return b.change("TOS", func(l *layer) {
		if l.spec == ipv4 {
			l.head[1] = v
			return
		}
		l.head[0] = l.head[0]&0xf0 | v>>4
		l.head[1] = l.head[1]&0x0f | v<<4
	}, ipv4, ipv6)
}

// FlowLabel sets the 20 bits of the IPv6 flow label.
func (b Builder) FlowLabel(v uint32) Builder {
	return b.change("flow label", func(l *layer) {
		l.head[1] = l.head[1]&0xf0 | byte(v>>16)&0x0f
		binary.BigEndian.PutUint16(l.head[2:], uint16(v))
	}, ipv6)
}

// Frag makes the IPv4 packet a fragment. offset is in bytes, a multiple of 8.
// To cut a packet into fragments, see Split.
func (b Builder) Frag(offset int, more bool, id uint16) Builder {
	return b.change("fragment offset", func(l *layer) { putFragment4(l.head, offset, more, id) }, ipv4)
}

func putFragment4(head []byte, offset int, more bool, id uint16) {
	v := uint16(offset / 8)
	if more {
		v |= 0x2000
	}
	binary.BigEndian.PutUint16(head[4:], id)
	binary.BigEndian.PutUint16(head[6:], v)
}

// Version overrides the IP version.
func (b Builder) Version(v uint8) Builder {
	return b.patch("version", func(head []byte) { head[0] = head[0]&0x0f | v<<4 }, ipv4, ipv6)
}

// IHL overrides the IPv4 header length, in units of 4 bytes.
func (b Builder) IHL(words uint8) Builder {
	return b.patch("IHL", func(head []byte) { head[0] = head[0]&0xf0 | words&0x0f }, ipv4)
}

// TotalLength overrides the IPv4 total length.
func (b Builder) TotalLength(v uint16) Builder {
	return b.patch("total length", func(head []byte) { binary.BigEndian.PutUint16(head[2:], v) }, ipv4)
}

// PayloadLength overrides the IPv6 payload length.
func (b Builder) PayloadLength(v uint16) Builder {
	return b.patch("payload length", func(head []byte) { binary.BigEndian.PutUint16(head[4:], v) }, ipv6)
}

// Options adds bytes of options to an IPv4, TCP or Geneve header, filled up
// with zeros (end of options) to a multiple of 4.
func (b Builder) Options(data ...byte) Builder {
	return b.change("options", func(l *layer) {
		l.head = append(l.head, data...)
		for len(l.head)%4 != 0 {
			l.head = append(l.head, 0)
		}
	}, ipv4, tcp, geneve)
}

func addr4(s string) []byte {
	a := netip.MustParseAddr(s)
	if !a.Is4() {
		panic("packet: not an IPv4 address: " + s)
	}
	return a.AsSlice()
}

func addr6(s string) []byte {
	a := netip.MustParseAddr(s)
	if !a.Is6() {
		panic("packet: not an IPv6 address: " + s)
	}
	return a.AsSlice()
}
