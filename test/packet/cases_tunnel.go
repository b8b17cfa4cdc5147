package packet

import "github.com/waymark-net/waymark/internal/flow"

// tunnelCases: with tunnels on, the flow is the inner one.
func tunnelCases() []Case {
	in4 := expect(c4, d4, ProtoUDP, 30, 40).bytes(20+8+10, 10)
	in6 := expect(c6, d6, ProtoUDP, 30, 40).bytes(40+8+10, 10)
	inner4 := func(b Builder) Builder { return b.IPv4(c4, d4).UDP(30, 40).Payload(10) }
	inner6 := func(b Builder) Builder { return b.IPv6(c6, d6).UDP(30, 40).Payload(10) }
	vx := func(b Builder, vni uint32) Builder { return b.UDP(50000, PortVXLAN).VXLAN(vni).Eth() }
	gn := func(b Builder, vni uint32) Builder { return b.UDP(50000, PortGeneve).Geneve(vni) }
	option := []byte{0x01, 0x02, 0x80, 1, 0xaa, 0xbb, 0xcc, 0xdd} // class, type, length 1 word
	vxlan4, geneve4 := in4.tunnel(flow.TunnelVXLAN, 0xabcdef), in4.tunnel(flow.TunnelGeneve, 0x123456)
	gre4, ipip4 := in4.tunnel(flow.TunnelGRE, 0), in4.tunnel(flow.TunnelIPIP, 0)
	ipip6 := in6.tunnel(flow.TunnelIPIP, 0)

	fragments := frames(eth4.IPv4(c4, d4).UDP(30, 40).Payload(900).Split(512, 7))
	cases := []Case{
		vxlan4.of("vxlan/ipv4 in ipv4", frame(inner4(vx(eth4, 0xabcdef)))),
		in6.tunnel(flow.TunnelVXLAN, 1).of("vxlan/ipv6 in ipv4", frame(inner6(vx(eth4, 1)))),
		in6.tunnel(flow.TunnelVXLAN, 1).of("vxlan/ipv6 in ipv6", frame(inner6(vx(eth6, 1)))),
		in4.tunnel(flow.TunnelVXLAN, 1).vlan(7, 5).of("vxlan/in qinq, tags inside",
			frame(inner4(vx(Eth().QinQ(7).VLAN(5).IPv4(a4, b4), 1).VLAN(8).VLAN(9)))),
		vxlan4.of("vxlan/inner padded",
			frame(eth4.UDP(50000, PortVXLAN).VXLAN(0xabcdef).Raw(inner4(Eth()).PadTo(60).Bytes()))),
		expect(c4, d4, ProtoTCP, 30, 40).flags(SYN).bytes(24+20, 0).tunnel(flow.TunnelVXLAN, 1).of("vxlan/inner options",
			frame(vx(eth4, 1).IPv4(c4, d4).Options(1, 1, 1).TCP(30, 40).Flags(SYN))),
		in6.with(func(d *flow.Delta) {
			d.TTLMin, d.TTLMax, d.TOS, d.FlowLabel = 9, 9, 0x2c, 0x54321
		}).tunnel(flow.TunnelVXLAN, 1).of("vxlan/header fields of the inner packet",
			frame(vx(Eth().IPv4(a4, b4).TTL(33).TOS(3), 1).IPv6(c6, d6).TTL(9).TOS(0x2c).FlowLabel(0x54321).UDP(30, 40).Payload(10))),

		geneve4.of("geneve/ethernet", frame(inner4(gn(eth4, 0x123456).Eth()))),
		geneve4.of("geneve/options", frame(inner4(gn(eth6, 0x123456).Options(option...).Eth()))),
		geneve4.of("geneve/ip inside", frame(inner4(gn(eth4, 0x123456)))),
		in6.tunnel(flow.TunnelGeneve, 2).of("geneve/ipv6 inside", frame(inner6(gn(eth4, 2).Options(option...)))),

		gre4.of("gre/ipv4", frame(inner4(eth4.GRE(0, 0, 0)))),
		in6.tunnel(flow.TunnelGRE, 0).of("gre/ipv6", frame(inner6(eth4.GRE(0, 0, 0)))),
		in4.tunnel(flow.TunnelGRE, 0xdeadbeef).of("gre/key", frame(inner4(eth6.GRE(GREKey, 0xdeadbeef, 0)))),
		gre4.of("gre/checksum", frame(inner4(eth4.GRE(GREChecksum, 0, 0)))),
		gre4.of("gre/sequence", frame(inner4(eth4.GRE(GRESequence, 0, 5)))),
		in4.tunnel(flow.TunnelGRE, 42).of("gre/checksum, key and sequence",
			frame(inner4(eth4.GRE(GREChecksum|GREKey|GRESequence, 42, 5)))),
		gre4.of("gre/ethernet", frame(inner4(eth4.GRE(0, 0, 0).Eth()))),
		gre4.of("gre/ethernet tagged", frame(inner4(eth4.GRE(0, 0, 0).Eth().VLAN(9)))),
		gre4.of("gre/behind options", frame(inner4(eth6.DestOpts().GRE(0, 0, 0)))),

		ipip4.of("ipip/ipv4 in ipv4", frame(inner4(eth4))),
		ipip6.of("ipip/ipv6 in ipv4", frame(inner6(eth4))),
		ipip4.of("ipip/ipv4 in ipv6", frame(inner4(eth6))),
		ipip6.of("ipip/ipv6 in ipv6", frame(inner6(eth6))),
		ipip6.of("ipip/behind options", frame(inner6(eth6.HopByHop().DestOpts()))),
		ipip6.of("ipip/no link header", l3(inner6(IPv6(a6, b6)))),
		expect(c6, d6, ProtoUDP, 30, 40).bytes(40+16+8+10, 10).tunnel(flow.TunnelIPIP, 0).of("ipip/inner extension headers",
			frame(eth6.IPv6(c6, d6).HopByHop().DestOpts().UDP(30, 40).Payload(10))),
		expect(c4, d4, ProtoICMP, 6, 8<<8).bytes(20+8, 0).tunnel(flow.TunnelIPIP, 0).of("ipip/icmp",
			frame(eth4.IPv4(c4, d4).ICMP(EchoRequest, 0, 6, 1))),
		// One level is taken off.
		expect(c4, d4, ProtoIPv6, 0, 0).bytes(20+40+8, 48).tunnel(flow.TunnelIPIP, 0).of("ipip/twice",
			frame(eth4.IPv4(c4, d4).IPv6(c6, d6).UDP(30, 40))),
		expect(c4, d4, ProtoUDP, 1, PortVXLAN).bytes(20+8+8+14+38, 8+14+38).tunnel(flow.TunnelGRE, 0).of("gre/vxlan inside",
			frame(inner4(eth4.GRE(0, 0, 0).IPv4(c4, d4).UDP(1, PortVXLAN).VXLAN(3).Eth()))),
		// Inner fragments belong to their flow; of outer ones nothing is taken off.
		expect(c4, d4, ProtoUDP, 30, 40).bytes(2*20+8+100, 100).tunnel(flow.TunnelIPIP, 0).with(func(d *flow.Delta) {
			d.Packets, d.Fragments = 2, 2
		}).of("ipip/inner fragments", frames(innerFragments())...),
		want4(ProtoIPIP, 0, 0).bytes(2*20+20+8+900, 20+8+900).with(func(d *flow.Delta) {
			d.Packets, d.Fragments = 2, 2
		}).of("ipip/outer fragments", fragments...),
	}
	for i := range cases {
		cases[i] = cases[i].inside(AllTunnels)
	}
	return cases
}

// innerFragments are two fragments of a datagram, each in an IPv4 packet of its own.
func innerFragments() [][]byte {
	var out [][]byte
	for _, f := range IPv4(c4, d4).UDP(30, 40).Payload(100).Split(64, 7) {
		out = append(out, eth4.NextHeader(ProtoIPIP).Raw(f).Bytes())
	}
	return out
}

// opaqueTunnelCases: the flow is the outer one when tunnels are off, or when
// what is inside is unknown.
func opaqueTunnelCases() []Case {
	inner := IPv4(c4, d4).UDP(30, 40).Payload(10).Bytes() // 38 bytes
	vx := eth4.UDP(50000, PortVXLAN)
	gn := eth4.UDP(50000, PortGeneve)
	gre := want4(ProtoGRE, 0, 0)
	vxlan := want4(ProtoUDP, 50000, PortVXLAN)
	geneve := want4(ProtoUDP, 50000, PortGeneve)
	ipip := want4(ProtoIPIP, 0, 0)

	off := []Case{
		vxlan.bytes(20+8+8+14+38, 8+14+38).of("off/vxlan", frame(vx.VXLAN(1).Eth().EtherType(TypeIPv4).Raw(inner))),
		geneve.bytes(20+8+8+38, 8+38).of("off/geneve", frame(gn.Geneve(1).EtherType(TypeIPv4).Raw(inner))),
		gre.bytes(20+4+38, 4+38).of("off/gre", frame(eth4.GRE(0, 0, 0).EtherType(TypeIPv4).Raw(inner))),
		ipip.bytes(20+38, 38).of("off/ipip", frame(eth4.NextHeader(ProtoIPIP).Raw(inner))),
		want4(ProtoIPv6, 0, 0).bytes(20+48, 48).of("off/6in4", frame(eth4.IPv6(c6, d6).UDP(1, 2))),
		want6(ProtoIPv6, 0, 0).bytes(40+48, 48).of("off/ip6ip6", frame(eth6.IPv6(c6, d6).UDP(1, 2))),
	}
	others := []Case{
		gre.bytes(20+4+38, 4+38).of("off/gre while others are on",
			frame(eth4.GRE(0, 0, 0).EtherType(TypeIPv4).Raw(inner))).inside(AllTunnels &^ (1 << flow.TunnelGRE)),
		vxlan.bytes(20+8+8+14+38, 8+14+38).of("off/vxlan while others are on",
			frame(vx.VXLAN(1).Eth().EtherType(TypeIPv4).Raw(inner))).inside(AllTunnels &^ (1 << flow.TunnelVXLAN)),
	}
	opaque := []Case{
		vxlan.bytes(20+8+8+14+28, 8+14+28).of("opaque/vxlan arp", frame(vx.VXLAN(1).Eth().ARP(c4, d4))),
		vxlan.bytes(20+8+8+14+38, 8+14+38).of("opaque/vxlan no I flag",
			frame(vx.VXLAN(1).Set(0, 0).Eth().EtherType(TypeIPv4).Raw(inner))),
		vxlan.bytes(20+8+8+14+12+38, 8+14+12+38).of("opaque/vxlan three tags",
			frame(vx.VXLAN(1).Eth().VLAN(1).VLAN(2).VLAN(3).EtherType(TypeIPv4).Raw(inner))),
		vxlan.bytes(20+8+8+14+20, 8+14+20).of("opaque/vxlan inner cut short",
			frame(vx.VXLAN(1).Eth().EtherType(TypeIPv4).Raw(inner[:20]))),
		vxlan.bytes(20+8+4, 4).of("opaque/vxlan header cut short", frame(vx.Payload(4))),
		vxlan.bytes(20+8, 0).of("opaque/vxlan nothing", frame(vx)),
		vxlan.bytes(20+8+8+14, 8+14).of("opaque/vxlan no inner header", frame(vx.VXLAN(1).Eth().EtherType(TypeIPv4))),
		// The way back has the port on the other side.
		want4(ProtoUDP, PortVXLAN, 50000).bytes(20+8+8+14+38, 8+14+38).of("opaque/vxlan source port",
			frame(eth4.UDP(PortVXLAN, 50000).VXLAN(1).Eth().EtherType(TypeIPv4).Raw(inner))),
		want4(ProtoUDPLite, 50000, PortVXLAN).bytes(20+8+8+14+38, 8+14+38).of("opaque/vxlan in udp-lite",
			frame(eth4.UDPLite(50000, PortVXLAN).VXLAN(1).Eth().EtherType(TypeIPv4).Raw(inner))),
		geneve.bytes(20+8+8+38, 8+38).of("opaque/geneve version 1",
			frame(gn.Geneve(1).Set(0, 0x40).EtherType(TypeIPv4).Raw(inner))),
		geneve.bytes(20+8+8+38, 8+38).of("opaque/geneve options beyond",
			frame(gn.Geneve(1).Set(0, 63).EtherType(TypeIPv4).Raw(inner))),
		geneve.bytes(20+8+8+38, 8+38).of("opaque/geneve unknown type",
			frame(gn.Geneve(1).EtherType(0x8847).Raw(inner))),
		gre.bytes(20+4+38, 4+38).of("opaque/gre version 1", frame(eth4.GRE(1, 0, 0).EtherType(0x880b).Raw(inner))),
		gre.bytes(20+8+38, 8+38).of("opaque/gre routing",
			frame(eth4.GRE(GRERouting, 0, 0).EtherType(TypeIPv4).Raw(inner))),
		gre.bytes(20+4, 4).of("opaque/gre keepalive", frame(eth4.GRE(0, 0, 0))),
		gre.bytes(20+3, 3).of("opaque/gre cut short", frame(eth4.NextHeader(ProtoGRE).Raw([]byte{0, 0, 8}))),
		gre.bytes(20+8, 8).of("opaque/gre key cut short", frame(eth4.NextHeader(ProtoGRE).Raw([]byte{0xb0, 0, 8, 0, 0, 0, 0, 0}))),
		gre.bytes(20+4+38, 4+38).of("opaque/gre wrong family", frame(eth4.GRE(0, 0, 0).EtherType(TypeIPv6).Raw(inner))),
		ipip.bytes(20+48, 48).of("opaque/ipip wrong family",
			frame(eth4.NextHeader(ProtoIPIP).Raw(IPv6(c6, d6).UDP(1, 2).Bytes()))),
		ipip.bytes(20+28, 28).of("opaque/ipip inner length",
			frame(eth4.NextHeader(ProtoIPIP).Raw(IPv4(c4, d4).TotalLength(29).UDP(1, 2).Bytes()))),
		ipip.bytes(20+28, 28).of("opaque/ipip inner tcp cut short",
			frame(eth4.IPv4(c4, d4).NextHeader(ProtoTCP).Payload(8))),
		ipip.bytes(20+20+9*24, 20+9*24).of("opaque/ipip inner chain",
			frame(eth4.NextHeader(ProtoIPIP).Raw(repeat(9, IPv4(c4, d4), ah1).Bytes()))),
	}
	for i := range opaque {
		opaque[i] = opaque[i].inside(AllTunnels)
	}
	return append(append(off, others...), opaque...)
}
