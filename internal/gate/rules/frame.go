package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Frame is an Ethernet frame that is as a packet is described, with right checksums. What it is about has to be known: addresses and a
// protocol. The link addresses are 0, and TTL or hop limit is 64.
func (p *Packet) Frame() ([]byte, error) {
	unknown := netip.IPv4Unspecified()
	if p.Family == 6 {
		unknown = netip.IPv6Unspecified()
	}
	switch {
	case p.Family == 0 || p.Src == unknown || p.Dst == unknown:
		return nil, errors.New("a packet has two addresses: write src and dst")
	case !p.HasProto:
		return nil, errors.New("a packet has a protocol: write tcp, udp, icmp or the like")
	}
	transport, sum := p.upper()
	head := ipv4Len
	if p.Family == 6 {
		head = ipv6Len
		if p.Fragment {
			head += fragmentLen
		}
	}
	least := head + len(transport)
	if p.Length != describedLength && int(p.Length) < least {
		return nil, fmt.Errorf("a packet of %d bytes is too short for its headers, which have %d", p.Length, least)
	}
	transport = append(transport, make([]byte, max(int(p.Length), least)-least)...)
	if p.Proto == protoUDP || p.Proto == protoUDPLite {
		binary.BigEndian.PutUint16(transport[4:], uint16(len(transport)))
	}
	if sum >= 0 {
		binary.BigEndian.PutUint16(transport[sum:], p.checksum(transport))
	}
	frame := make([]byte, etherLen-2, etherLen+head+len(transport))
	if p.Tagged {
		frame = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(frame, etherVLAN), p.VLAN)
	}
	if p.Family == 6 {
		return append(p.header6(binary.BigEndian.AppendUint16(frame, etherIPv6), len(transport)), transport...), nil
	}
	return append(p.header4(binary.BigEndian.AppendUint16(frame, etherIPv4), len(transport)), transport...), nil
}

const (
	fragmentLen  = 8
	describedTTL = 64
	flagACK      = 16
	// protoFragment is that of the IPv6 header.
	protoFragment = 44
)

// upper is the header behind that of IP, and where its checksum is; -1: it has none.
func (p *Packet) upper() (b []byte, sum int) {
	ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, p.Sport), p.Dport)
	switch p.Proto {
	case protoTCP:
		flags := p.TCPFlags
		if !p.HasTCPFlags {
			flags = flagACK
		}
		return append(append(ports, make([]byte, 8)...), 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0), 16
	case protoUDP, protoUDPLite:
		return append(ports, make([]byte, 4)...), 6
	case protoSCTP:
		return append(ports, make([]byte, 8)...), -1
	case protoICMP, protoICMPv6:
		return append([]byte{p.ICMPType}, make([]byte, 7)...), 2
	}
	return nil, -1
}

// checksum is that of a header and what follows, in which it is 0.
func (p *Packet) checksum(b []byte) uint16 {
	var sum uint32
	add := func(b []byte) {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	add(b)
	if p.Proto != protoICMP {
		add(p.Src.AsSlice())
		add(p.Dst.AsSlice())
		sum += uint32(p.Proto) + uint32(len(b))
	}
	return folded(sum)
}

func folded(sum uint32) uint16 {
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	if ^uint16(sum) == 0 {
		return 0xffff // 0 says that there is none
	}
	return ^uint16(sum)
}

func (p *Packet) header4(to []byte, payload int) []byte {
	at := len(to)
	to = append(to, 0x45, p.DSCP<<2)
	to = binary.BigEndian.AppendUint16(to, uint16(ipv4Len+payload))
	to = append(to, 0, 1, 0, 0, describedTTL, p.Proto, 0, 0)
	to[at+6] = 0x40 // not to be fragmented
	if p.Fragment {
		to[at+6] = 0x20 // the first one of several
	}
	to = append(append(to, p.Src.AsSlice()...), p.Dst.AsSlice()...)
	var sum uint32
	for i := 0; i < ipv4Len; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(to[at+i:]))
	}
	binary.BigEndian.PutUint16(to[at+10:], folded(sum))
	return to
}

func (p *Packet) header6(to []byte, payload int) []byte {
	next := p.Proto
	if p.Fragment {
		payload, next = payload+fragmentLen, protoFragment
	}
	to = binary.BigEndian.AppendUint32(to, 6<<28|uint32(p.DSCP)<<22)
	to = binary.BigEndian.AppendUint16(to, uint16(payload))
	to = append(to, next, describedTTL)
	to = append(append(to, p.Src.AsSlice()...), p.Dst.AsSlice()...)
	if p.Fragment {
		to = append(to, p.Proto, 0, 0, 1, 0, 0, 0, 1)
	}
	return to
}
