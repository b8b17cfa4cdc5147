package rules

import (
	"encoding/binary"
	"net/netip"
)

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100
	etherQinQ = 0x88a8

	etherLen   = 14
	ipv4Len    = 20
	ipv6Len    = 40
	maxTags    = 2
	maxHeaders = 8 // extension headers that are followed
)

// ReadEthernet reads what rules may ask about an Ethernet frame.
func ReadEthernet(data []byte) *Packet {
	p := &Packet{}
	if len(data) < etherLen {
		return p
	}
	etherType, rest := binary.BigEndian.Uint16(data[12:]), data[etherLen:]
	for n := 0; n < maxTags && (etherType == etherVLAN || etherType == etherQinQ) && len(rest) >= 4; n++ {
		if n == 0 {
			p.Tagged, p.VLAN = true, binary.BigEndian.Uint16(rest)&0xfff
		}
		etherType, rest = binary.BigEndian.Uint16(rest[2:]), rest[4:]
	}
	switch etherType {
	case etherIPv4:
		p.ipv4(rest)
	case etherIPv6:
		p.ipv6(rest)
	}
	return p
}

// ReadIP reads a packet that begins with its IP header.
func ReadIP(data []byte) *Packet {
	p := &Packet{}
	switch {
	case len(data) == 0:
	case data[0]>>4 == 4:
		p.ipv4(data)
	case data[0]>>4 == 6:
		p.ipv6(data)
	}
	return p
}

func (p *Packet) ipv4(b []byte) {
	p.Family = 4
	if len(b) < ipv4Len || b[0]>>4 != 4 {
		return
	}
	header := int(b[0]&15) * 4
	length := binary.BigEndian.Uint16(b[2:])
	if header < ipv4Len || int(length) < header {
		return
	}
	p.Src, p.Dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	p.Length, p.DSCP = length, b[1]>>2
	p.Proto, p.HasProto = b[9], true
	fragment := binary.BigEndian.Uint16(b[6:]) & 0x3fff
	p.Fragment = fragment != 0
	if fragment&0x1fff == 0 && len(b) >= header {
		p.transport(b[header:min(len(b), int(length))])
	}
}

func (p *Packet) ipv6(b []byte) {
	p.Family = 6
	if len(b) < ipv6Len || b[0]>>4 != 6 {
		return
	}
	payload := int(binary.BigEndian.Uint16(b[4:]))
	p.Src, p.Dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	p.Length, p.DSCP = uint16(min(ipv6Len+payload, 65535)), uint8(binary.BigEndian.Uint16(b)>>6)&63
	next, rest := b[6], b[ipv6Len:min(len(b), ipv6Len+payload)]
	for range maxHeaders + 1 {
		length := 0
		switch next {
		case 0, 43, 60, 135: // hop-by-hop, routing, destination options, mobility
			if len(rest) >= 2 {
				length = int(rest[1])*8 + 8
			}
		case 51: // AH
			if len(rest) >= 2 {
				length = int(rest[1])*4 + 8
			}
		case 44: // fragment
			length = 8
			p.Fragment = true
			if len(rest) >= 8 && binary.BigEndian.Uint16(rest[2:])>>3 != 0 {
				p.Proto, p.HasProto = rest[0], true
				return
			}
		default:
			p.Proto, p.HasProto = next, true
			p.transport(rest)
			return
		}
		if length == 0 || len(rest) < length {
			return
		}
		next, rest = rest[0], rest[length:]
	}
}

// transport reads the header of the upper layer.
func (p *Packet) transport(b []byte) {
	switch p.Proto {
	case protoTCP, protoUDP, protoSCTP, protoUDPLite:
		if len(b) >= 4 {
			p.Sport, p.Dport, p.HasPorts = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), true
		}
		if p.Proto == protoTCP && len(b) >= 14 {
			p.TCPFlags, p.HasTCPFlags = b[13], true
		}
	case protoICMP, protoICMPv6:
		if len(b) >= 1 && (p.Proto == protoICMP) == (p.Family == 4) {
			p.ICMPType, p.HasICMPType = b[0], true
		}
	}
}
