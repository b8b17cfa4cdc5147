package packet

import (
	"bytes"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
)

// Addresses of the cases (RFC 5737, RFC 3849).
const (
	a4, b4 = "192.0.2.1", "198.51.100.2"
	a6, b6 = "2001:db8::1", "2001:db8:ffff::2"
	// Inside tunnels.
	c4, d4 = "10.1.0.1", "10.2.0.2"
	c6, d6 = "fd00:1::1", "fd00:2::2"
)

// Beginnings and outcomes that most cases share.
var (
	eth4 = Eth().IPv4(a4, b4)
	eth6 = Eth().IPv6(a6, b6)
)

func want4(proto uint8, sport, dport uint16) want { return expect(a4, b4, proto, sport, dport) }
func want6(proto uint8, sport, dport uint16) want { return expect(a6, b6, proto, sport, dport) }

// Cases is the table of packets and what the probes must make of them. Lengths
// in it are written out by hand: 20 or 40 bytes of IP header, extension
// headers, transport header, payload.
func Cases() []Case {
	return slices.Concat(
		linkCases(), ipv4Cases(), ipv6Cases(), chainCases(), transportCases(), icmpCases(),
		fragmentCases(), tunnelCases(), opaqueTunnelCases(), gsoCases(),
	)
}

func linkCases() []Case {
	udp4 := want4(ProtoUDP, 1000, 2000).bytes(20+8+10, 10)
	udp6 := want6(ProtoUDP, 1000, 2000).bytes(40+8+10, 10)
	body := func(b Builder) Builder { return b.IPv4(a4, b4).UDP(1000, 2000).Payload(10) }
	body6 := func(b Builder) Builder { return b.IPv6(a6, b6).UDP(1000, 2000).Payload(10) }
	tagged := func(b Builder, tpid, tci uint16) Frame {
		return Frame{Data: b.Bytes(), Tag: &Tag{tpid, tci}}
	}
	return []Case{
		udp4.of("link/ipv4", frame(body(Eth()))),
		udp6.of("link/ipv6", frame(body6(Eth()))),
		udp4.of("link/padded", frame(body(Eth()).PadTo(60))),
		udp6.of("link/padded ipv6", frame(body6(Eth()).PadTo(80))),
		udp4.vlan(5, 0).of("link/vlan", frame(body(Eth().VLAN(5)))),
		udp6.vlan(5, 0).of("link/vlan ipv6", frame(body6(Eth().VLAN(5)))),
		udp4.vlan(4095, 0).of("link/vlan priority bits", frame(body(Eth().VLAN(0xffff)))),
		udp4.of("link/priority tag", frame(body(Eth().VLAN(0xe000)))),
		udp4.vlan(5, 0).of("link/802.1ad alone", frame(body(Eth().QinQ(5)))),
		udp4.vlan(7, 5).of("link/qinq", frame(body(Eth().QinQ(7).VLAN(5)))),
		udp6.vlan(7, 5).of("link/qinq ipv6 padded", frame(body6(Eth().VLAN(7).VLAN(5)).PadTo(90))),
		udp4.vlan(5, 0).of("link/accelerated", tagged(body(Eth()), TypeVLAN, 5)),
		udp4.vlan(7, 5).of("link/accelerated outer", tagged(body(Eth().VLAN(5)), TypeQinQ, 0x2007)),
		uncounted("link/three tags", ReasonVLANDepth, frame(body(Eth().VLAN(1).VLAN(2).VLAN(3)))),
		uncounted("link/three tags, one accelerated", ReasonVLANDepth, tagged(body(Eth().VLAN(1).VLAN(2)), TypeVLAN, 5)),
		uncounted("link/arp", ReasonARP, frame(Eth().ARP(a4, b4).PadTo(60))),
		uncounted("link/arp tagged", ReasonARP, frame(Eth().VLAN(5).ARP(a4, b4))),
		uncounted("link/lldp", ReasonEtherType, frame(Eth().EtherType(0x88cc).Payload(40))),
		uncounted("link/llc", ReasonEtherType, frame(Eth().EtherType(40).Payload(40))),
		uncounted("link/unknown in qinq", ReasonEtherType, frame(Eth().QinQ(1).VLAN(2).EtherType(0x9000).Payload(10))),
		uncounted("link/header only", ReasonTruncated, frame(Eth().EtherType(TypeIPv4))),
		udp4.of("link/none", l3(body(Builder{}))),
		udp6.of("link/none ipv6", l3(body6(Builder{}))),
		uncounted("link/none, bad version", ReasonMalformed, l3(IPv4(a4, b4).Version(5).UDP(1, 2))),
	}
}

func ipv4Cases() []Case {
	udp := want4(ProtoUDP, 1000, 2000)
	recordRoute := append([]byte{7, 39, 4}, make([]byte, 36)...) // with end of options: 40 bytes
	return []Case{
		udp.bytes(20+4+8+10, 10).of("ipv4/router alert",
			frame(eth4.Options(148, 4, 0, 0).UDP(1000, 2000).Payload(10))),
		udp.bytes(60+8+10, 10).of("ipv4/ten words of options",
			frame(eth4.Options(recordRoute...).UDP(1000, 2000).Payload(10))),
		want4(ProtoTCP, 1000, 2000).flags(ACK).bytes(24+20+5, 5).of("ipv4/options tcp",
			frame(eth4.Options(1, 1, 1).TCP(1000, 2000).Payload(5))),
		udp.bytes(20+8, 0).with(func(d *flow.Delta) { d.TTLMin, d.TTLMax, d.TOS = 1, 1, 0xb8 }).of("ipv4/ttl and tos",
			frame(eth4.TTL(1).TOS(0xb8).UDP(1000, 2000))),
		udp.bytes(20+8, 0).with(func(d *flow.Delta) { d.TOS, d.CEPackets = 0x03, 1 }).of("ipv4/congestion experienced",
			frame(eth4.TOS(0x03).UDP(1000, 2000))),
		udp.bytes(20+8, 0).with(func(d *flow.Delta) { d.TOS = 0x02 }).of("ipv4/ecn capable",
			frame(eth4.TOS(0x02).UDP(1000, 2000))),
		udp.bytes(20+8, 0).with(func(d *flow.Delta) { d.TTLMin, d.TTLMax = 0, 0 }).of("ipv4/ttl 0",
			frame(eth4.TTL(0).UDP(1000, 2000))),
		// Checksums are the receiver's business.
		udp.bytes(20+8, 0).of("ipv4/wrong checksum", frame(eth4.Checksum(0xdead).UDP(1000, 2000))),
		want4(ProtoTest, 0, 0).bytes(20+10, 10).of("ipv4/unknown protocol", frame(eth4.Payload(10))),
		want4(ProtoTest, 0, 0).bytes(20, 0).of("ipv4/header only", frame(eth4.PadTo(60))),
		want4(ProtoESP, 0, 0).bytes(20+8+24, 32).of("ipv4/esp", frame(eth4.ESP(1, 1).Payload(24))),
		udp.bytes(20+24+8+4, 4).of("ipv4/ah", frame(eth4.AH(7, 1, 12).UDP(1000, 2000).Payload(4))),
		udp.bytes(20+24+24+8, 0).of("ipv4/ah twice", frame(eth4.AH(7, 1, 12).AH(8, 1, 12).UDP(1000, 2000))),
		uncounted("ipv4/ah nine times", ReasonExtChain, frame(repeat(9, eth4, ah1).UDP(1000, 2000))),
		uncounted("ipv4/ah too long", ReasonMalformed, frame(eth4.AH(7, 1, 12).HdrExtLen(200).UDP(1000, 2000))),
		// IPv6 extension headers are unknown protocols in IPv4.
		want4(ProtoDestOpts, 0, 0).bytes(20+8+8, 16).of("ipv4/destination options", frame(eth4.DestOpts().UDP(1000, 2000))),

		uncounted("ipv4/version 6", ReasonMalformed, frame(eth4.Version(6).UDP(1000, 2000).Payload(20))),
		uncounted("ipv4/version 0", ReasonMalformed, frame(eth4.Version(0).UDP(1000, 2000))),
		uncounted("ipv4/ihl 4", ReasonMalformed, frame(eth4.IHL(4).UDP(1000, 2000))),
		uncounted("ipv4/ihl 0", ReasonMalformed, frame(eth4.IHL(0).UDP(1000, 2000))),
		uncounted("ipv4/ihl beyond total length", ReasonMalformed, frame(eth4.IHL(15).UDP(1000, 2000))),
		uncounted("ipv4/total length below header", ReasonMalformed, frame(eth4.TotalLength(19).UDP(1000, 2000))),
		uncounted("ipv4/total length 0", ReasonMalformed, frame(eth4.TotalLength(0).UDP(1000, 2000))),
		uncounted("ipv4/total length one too many", ReasonMalformed, frame(eth4.TotalLength(29).UDP(1000, 2000))),
		uncounted("ipv4/total length 65535", ReasonMalformed, frame(eth4.TotalLength(65535).UDP(1000, 2000))),
	}
}

func ah1(b Builder) Builder { return b.AH(1, 1, 12) }

func repeat(n int, b Builder, add func(Builder) Builder) Builder {
	for range n {
		b = add(b)
	}
	return b
}

func ipv6Cases() []Case {
	udp := want6(ProtoUDP, 1000, 2000)
	jumbo := Option{Type: 0xc2, Data: []byte{0, 0, 0, 8 + 8 + 20}} // RFC 2675
	return []Case{
		udp.bytes(40+8, 0).with(func(d *flow.Delta) {
			d.TTLMin, d.TTLMax, d.TOS, d.FlowLabel = 255, 255, 0xb9, 0xabcde
		}).of("ipv6/hop limit, class and label",
			frame(eth6.TTL(255).TOS(0xb9).FlowLabel(0xabcde).UDP(1000, 2000))),
		udp.bytes(40+8, 0).with(func(d *flow.Delta) { d.TOS, d.CEPackets = 0xff, 1 }).of("ipv6/congestion experienced",
			frame(eth6.TOS(0xff).UDP(1000, 2000))),
		want6(ProtoTest, 0, 0).bytes(40+10, 10).of("ipv6/unknown protocol", frame(eth6.NextHeader(ProtoTest).Payload(10))),
		want6(ProtoNoNext, 0, 0).bytes(40, 0).of("ipv6/no next header", frame(eth6)),
		want6(ProtoNoNext, 0, 0).bytes(40+12, 12).of("ipv6/no next header with bytes", frame(eth6.Payload(12))),
		want6(ProtoESP, 0, 0).bytes(40+8+24, 32).of("ipv6/esp", frame(eth6.ESP(2, 1).Payload(24))),
		udp.bytes(40+8+8+20, 20).of("ipv6/jumbogram",
			frame(eth6.PayloadLength(0).HopByHop(jumbo).UDP(1000, 2000).Payload(20))),
		want6(ProtoTest, 0, 0).bytes(40, 0).of("ipv6/payload length 0",
			frame(eth6.NextHeader(ProtoTest).PayloadLength(0).Payload(10))),
		uncounted("ipv6/payload length 0 before udp", ReasonMalformed, frame(eth6.PayloadLength(0).UDP(1000, 2000))),
		uncounted("ipv6/payload length one too many", ReasonMalformed, frame(eth6.PayloadLength(9).UDP(1000, 2000))),
		uncounted("ipv6/payload length 65535", ReasonMalformed, frame(eth6.PayloadLength(65535).UDP(1000, 2000))),
		uncounted("ipv6/version 4", ReasonMalformed, frame(eth6.Version(4).UDP(1000, 2000))),
		uncounted("ipv6/version 15", ReasonMalformed, frame(eth6.Version(15).UDP(1000, 2000))),
	}
}

func chainCases() []Case {
	udp := want6(ProtoUDP, 1000, 2000)
	pdm := Option{Type: 0x0f, Data: make([]byte, 10)}
	alert := Option{Type: 5, Data: []byte{0, 0}}
	eight := repeat(8, eth6, func(b Builder) Builder { return b.DestOpts() })
	return []Case{
		udp.bytes(40+8+8+6, 6).of("chain/hop-by-hop", frame(eth6.HopByHop(alert).UDP(1000, 2000).Payload(6))),
		udp.bytes(40+16+8+6, 6).of("chain/destination options", frame(eth6.DestOpts(pdm).UDP(1000, 2000).Payload(6))),
		udp.bytes(40+24+8+6, 6).of("chain/routing", frame(eth6.Routing(b6).UDP(1000, 2000).Payload(6))),
		udp.bytes(40+24+8+6, 6).of("chain/ah", frame(eth6.AH(7, 1, 12).UDP(1000, 2000).Payload(6))),
		udp.bytes(40+28+8, 0).of("chain/ah of seven words", frame(eth6.AH(7, 1, 16).UDP(1000, 2000))),
		udp.bytes(40+8+8, 0).of("chain/mobility", frame(eth6.Mobility().UDP(1000, 2000))),
		udp.bytes(40+40+8, 0).of("chain/hip", frame(eth6.HIP().UDP(1000, 2000))),
		want6(ProtoNoNext, 0, 0).bytes(40+8, 0).of("chain/mobility alone", frame(eth6.Mobility())),
		want6(ProtoNoNext, 0, 0).bytes(40+40, 0).of("chain/hip alone", frame(eth6.HIP())),
		udp.bytes(40+8+8, 0).of("chain/shim6", frame(eth6.Shim6(9).UDP(1000, 2000))),
		udp.bytes(40+8+24+16+8+9, 9).of("chain/three headers",
			frame(eth6.HopByHop(alert).Routing(b6).DestOpts(pdm).UDP(1000, 2000).Payload(9))),
		want6(ProtoTCP, 1000, 2000).flags(SYN).bytes(40+8+8+24+16+20, 0).vlan(3, 0).of("chain/four headers tcp",
			frame(Eth().VLAN(3).IPv6(a6, b6).HopByHop().DestOpts().AH(1, 1, 12).DestOpts(pdm).TCP(1000, 2000).Flags(SYN))),
		udp.bytes(40+2048+8, 0).of("chain/longest header",
			frame(eth6.DestOpts(longest()...).UDP(1000, 2000))),
		udp.bytes(40+8*8+8, 0).of("chain/eight headers", frame(eight.UDP(1000, 2000))),
		want6(ProtoNoNext, 0, 0).bytes(40+8*8, 0).of("chain/eight headers and no more", frame(eight)),
		uncounted("chain/nine headers", ReasonExtChain, frame(eight.HopByHop().UDP(1000, 2000))),
		want6(ProtoNoNext, 0, 0).bytes(40+8, 0).of("chain/no next header", frame(eth6.HopByHop())),
		want6(ProtoESP, 0, 0).bytes(40+8+8+16, 24).of("chain/esp", frame(eth6.DestOpts().ESP(3, 1).Payload(16))),
		want6(ProtoTest, 0, 0).bytes(40+8+3, 3).of("chain/unknown protocol",
			frame(eth6.HopByHop().NextHeader(ProtoTest).Payload(3))),
		uncounted("chain/beyond the payload", ReasonMalformed, frame(eth6.DestOpts().HdrExtLen(2).UDP(1000, 2000))),
		uncounted("chain/length 255", ReasonMalformed, frame(eth6.HopByHop().HdrExtLen(255).UDP(1000, 2000))),
		uncounted("chain/header missing", ReasonMalformed, frame(eth6.HopByHop().NextHeader(ProtoDestOpts))),
		uncounted("chain/one byte of header", ReasonMalformed, frame(eth6.NextHeader(ProtoDestOpts).Raw([]byte{17}))),
		uncounted("chain/half a header", ReasonMalformed, frame(eth6.NextHeader(ProtoDestOpts).Raw([]byte{17, 0, 1, 0}))),
		uncounted("chain/beyond the payload, within padding", ReasonMalformed,
			frame(eth6.DestOpts().HdrExtLen(2).UDP(1000, 2000).PadTo(200))),
		uncounted("chain/ah too short for itself", ReasonMalformed,
			frame(eth6.NextHeader(ProtoAH).Raw([]byte{17, 0, 0, 0}))),
	}
}

// longest are the options of a Destination Options header of 2048 bytes.
func longest() []Option {
	var opts []Option
	for range 7 {
		opts = append(opts, Option{Type: 0x1e, Data: make([]byte, 253)})
	}
	return append(opts, Option{Type: 0x1e, Data: make([]byte, 2048-2-7*255-2)})
}

func transportCases() []Case {
	tcp := want4(ProtoTCP, 1000, 2000)
	tcp6 := want6(ProtoTCP, 1000, 2000)
	mss := []byte{2, 4, 5, 0xb4, 4, 2, 1, 1}
	t4 := eth4.TCP(1000, 2000)
	all := uint16(0x0fff)
	return []Case{
		tcp.flags(SYN).bytes(20+28, 0).of("tcp/syn", frame(t4.Flags(SYN).Options(mss...))),
		tcp.flags(SYN|ACK).bytes(20+60, 0).of("tcp/longest header", frame(t4.Flags(SYN|ACK).Options(fullOptions()...))),
		tcp.flags(PSH|ACK).bytes(20+60+9, 9).of("tcp/longest header with payload",
			frame(t4.Flags(PSH|ACK).Options(fullOptions()...).Payload(9))),
		tcp.flags(all).bytes(20+20, 0).of("tcp/all twelve flags", frame(t4.Flags(all))),
		tcp.flags(0).bytes(20+20, 0).of("tcp/no flags", frame(t4.Flags(0))),
		tcp.flags(AE|CWR|ECE|SYN).bytes(20+20, 0).of("tcp/accurate ecn", frame(t4.Flags(AE|CWR|ECE|SYN))),
		tcp.flags(FIN|ACK).bytes(20+20, 0).of("tcp/padded", frame(t4.Flags(FIN|ACK).PadTo(60))),
		tcp6.flags(RST).bytes(40+20, 0).of("tcp/ipv6", frame(eth6.TCP(1000, 2000).Flags(RST))),
		uncounted("tcp/data offset 4", ReasonMalformed, frame(t4.DataOffset(4))),
		uncounted("tcp/data offset 0", ReasonMalformed, frame(t4.DataOffset(0).Payload(40))),
		uncounted("tcp/data offset beyond", ReasonMalformed, frame(t4.DataOffset(6).Payload(3))),
		uncounted("tcp/data offset within padding", ReasonMalformed, frame(t4.DataOffset(6).PadTo(60))),
		uncounted("tcp/short", ReasonMalformed, frame(eth4.NextHeader(ProtoTCP).Payload(19))),
		uncounted("tcp/nothing", ReasonMalformed, frame(eth6.NextHeader(ProtoTCP))),

		want4(ProtoUDP, 65535, 1).bytes(20+8+1, 1).of("udp/one byte", frame(eth4.UDP(65535, 1).Payload(1))),
		want4(ProtoUDP, 0, 0).bytes(20+8, 0).of("udp/ports 0", frame(eth4.UDP(0, 0))),
		// The IP length decides; the UDP length is the receiver's business.
		want4(ProtoUDP, 1000, 2000).bytes(20+8+5, 5).of("udp/length 0", frame(eth4.UDP(1000, 2000).UDPLength(0).Payload(5))),
		want4(ProtoUDP, 1000, 2000).bytes(20+8+5, 5).of("udp/length too great", frame(eth4.UDP(1000, 2000).UDPLength(999).Payload(5))),
		want4(ProtoUDP, 1000, 2000).bytes(20+8+5, 5).of("udp/no checksum", frame(eth4.UDP(1000, 2000).Checksum(0).Payload(5))),
		uncounted("udp/short", ReasonMalformed, frame(eth4.NextHeader(ProtoUDP).Payload(7))),
		uncounted("udp/nothing", ReasonMalformed, frame(eth6.NextHeader(ProtoUDP))),
		want4(ProtoUDPLite, 1000, 2000).bytes(20+8+5, 5).of("udplite/ipv4", frame(eth4.UDPLite(1000, 2000).Payload(5))),
		want6(ProtoUDPLite, 1000, 2000).bytes(40+8+5, 5).of("udplite/ipv6", frame(eth6.UDPLite(1000, 2000).Payload(5))),
		uncounted("udplite/short", ReasonMalformed, frame(eth4.NextHeader(ProtoUDPLite).Payload(7))),

		want4(ProtoSCTP, 1000, 2000).bytes(20+12+16+8, 24).of("sctp/data", frame(eth4.SCTP(1000, 2000, 5).Data(1, 8))),
		want6(ProtoSCTP, 1000, 2000).bytes(40+12+16+8, 24).of("sctp/ipv6", frame(eth6.SCTP(1000, 2000, 5).Data(2, 8))),
		want6(ProtoSCTP, 1000, 2000).bytes(40+12, 0).of("sctp/no chunk", frame(eth6.SCTP(1000, 2000, 5))),
		uncounted("sctp/short", ReasonMalformed, frame(eth4.NextHeader(ProtoSCTP).Payload(11))),

		want4(ProtoDCCP, 1000, 2000).bytes(20+16+7, 7).of("dccp/data", frame(eth4.DCCP(1000, 2000).Payload(7))),
		want6(ProtoDCCP, 1000, 2000).bytes(40+16+7, 7).of("dccp/ipv6", frame(eth6.DCCP(1000, 2000).Payload(7))),
		uncounted("dccp/short", ReasonMalformed, frame(eth4.NextHeader(ProtoDCCP).Payload(11))),
		uncounted("dccp/data offset 2", ReasonMalformed, frame(eth4.DCCP(1000, 2000).DataOffset(2))),
		uncounted("dccp/data offset beyond", ReasonMalformed, frame(eth4.DCCP(1000, 2000).DataOffset(5))),
	}
}

// fullOptions are 40 bytes of TCP options, as many as fit: user timeouts.
func fullOptions() []byte { return bytes.Repeat([]byte{28, 4, 0, 9}, 10) }

// timestamps is the TCP option that most packets have (RFC 7323), padded to 12 bytes.
func timestamps() []byte { return []byte{1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2} }

func icmpCases() []Case {
	return []Case{
		want4(ProtoICMP, 0x1234, 8<<8).bytes(20+8+56, 56).of("icmp/echo request", frame(eth4.ICMP(EchoRequest, 0, 0x1234, 1).Payload(56))),
		want4(ProtoICMP, 0x1234, 0).bytes(20+8+56, 56).of("icmp/echo reply", frame(eth4.ICMP(EchoReply, 0, 0x1234, 1).Payload(56))),
		want4(ProtoICMP, 0, 3<<8|3).bytes(20+8+28, 28).of("icmp/port unreachable",
			frame(eth4.ICMP(3, 3, 0, 0).Raw(IPv4(b4, a4).UDP(2000, 1000).Bytes()))),
		want4(ProtoICMP, 0, 11<<8).bytes(20+4, 0).of("icmp/four bytes", frame(eth4.NextHeader(ProtoICMP).Raw([]byte{11, 0, 0xf4, 0xff}))),
		want4(ProtoICMP, 0, 13<<8).bytes(20+8+12, 12).of("icmp/timestamp", frame(eth4.ICMP(13, 0, 7, 1).Raw(make([]byte, 12)))),
		uncounted("icmp/three bytes", ReasonMalformed, frame(eth4.NextHeader(ProtoICMP).Raw([]byte{11, 0, 0}))),
		uncounted("icmp/echo of seven bytes", ReasonMalformed, frame(eth4.NextHeader(ProtoICMP).Raw([]byte{8, 0, 0, 0, 0, 0, 0}))),

		want6(ProtoICMPv6, 0x1234, 128<<8).bytes(40+8+56, 56).of("icmpv6/echo request", frame(eth6.ICMPv6(EchoRequestV6, 0, 0x1234, 1).Payload(56))),
		want6(ProtoICMPv6, 0x1234, 129<<8).bytes(40+8+56, 56).of("icmpv6/echo reply", frame(eth6.ICMPv6(EchoReplyV6, 0, 0x1234, 1).Payload(56))),
		want6(ProtoICMPv6, 0, 135<<8).bytes(40+8+16, 16).with(func(d *flow.Delta) { d.TTLMin, d.TTLMax = 255, 255 }).of("icmpv6/neighbour solicitation",
			frame(eth6.TTL(255).ICMPv6(135, 0, 0, 0).Raw(addr6(b6)))),
		want6(ProtoICMPv6, 0, 1<<8|4).bytes(40+8+48, 48).of("icmpv6/port unreachable",
			frame(eth6.ICMPv6(1, 4, 0, 0).Raw(IPv6(b6, a6).UDP(2000, 1000).Bytes()))),
		want6(ProtoICMPv6, 0, 143<<8).bytes(40+8+8, 0).with(func(d *flow.Delta) { d.TTLMin, d.TTLMax = 1, 1 }).of("icmpv6/multicast listener report",
			frame(eth6.TTL(1).HopByHop(Option{Type: 5, Data: []byte{0, 0}}).ICMPv6(143, 0, 0, 0))),
		uncounted("icmpv6/three bytes", ReasonMalformed, frame(eth6.NextHeader(ProtoICMPv6).Raw([]byte{1, 0, 0}))),
		uncounted("icmpv6/echo of four bytes", ReasonMalformed, frame(eth6.NextHeader(ProtoICMPv6).Raw([]byte{128, 0, 0, 0}))),
	}
}
