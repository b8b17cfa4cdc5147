package packet

import (
	"encoding/binary"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
)

// gsoCases: one frame that leaves as several segments, each with the headers.
func gsoCases() []Case {
	burst := func(b Builder, segments, size uint16) Frame {
		return Frame{Data: b.Bytes(), GSO: GSO{segments, size}}
	}
	segments := func(n, headers, frameHeaders uint64) func(*flow.Delta) {
		return func(d *flow.Delta) {
			d.Packets = n
			d.Bytes += (n - 1) * headers
			d.WireBytes += (n - 1) * frameHeaders
		}
	}
	inner := func(n, headers uint64) func(*flow.Delta) {
		return func(d *flow.Delta) { d.PayloadBytes += (n - 1) * headers }
	}
	vx := eth4.UDP(50000, PortVXLAN).VXLAN(9).Eth()
	vxlan := want4(ProtoUDP, 50000, PortVXLAN)
	datagram := Builder{}.VXLAN(9).Eth().IPv4(c4, d4).UDP(30, 40).Payload(1000 - 50).Bytes()
	// RFC 2675, as the kernel writes it: no segment has it.
	jumbo := Option{Type: 0xc2, Data: binary.BigEndian.AppendUint32(nil, 8+20+70000)}
	tagged := burst(eth6.TCP(1000, 2000).Payload(2500), 3, 1000)
	tagged.Tag = &Tag{TypeVLAN, 5}
	return []Case{
		want4(ProtoTCP, 1000, 2000).flags(ACK).bytes(20+32+2500, 2500).with(segments(3, 52, 66)).of("gso/tcp",
			burst(eth4.TCP(1000, 2000).Options(timestamps()...).Payload(2500), 3, 1000)),
		want6(ProtoTCP, 1000, 2000).flags(ACK).bytes(40+20+2500, 2500).with(segments(3, 60, 78)).vlan(5, 0).of("gso/tcp ipv6 tagged",
			tagged),
		want6(ProtoUDP, 1000, 2000).bytes(40+8+8+3000, 3000).with(segments(3, 56, 70)).of("gso/udp behind hop-by-hop",
			burst(eth6.HopByHop().UDP(1000, 2000).Payload(3000), 3, 1000)),
		want4(ProtoTCP, 1000, 2000).flags(ACK).bytes(20+20+900, 900).of("gso/one segment",
			burst(eth4.TCP(1000, 2000).Payload(900), 1, 1000)),
		expect(c4, d4, ProtoTCP, 30, 40).flags(ACK).bytes(20+20+2000, 2000).with(segments(2, 40, 14+20+8+8+14+40)).
			tunnel(flow.TunnelVXLAN, 9).of("gso/vxlan",
			burst(eth4.UDP(50000, PortVXLAN).VXLAN(9).Eth().IPv4(c4, d4).TCP(30, 40).Payload(2000), 2, 1000)).
			inside(AllTunnels),
		// Of an outer flow the inner headers are payload, in every segment.
		vxlan.bytes(20+8+8+14+40+2000, 8+14+40+2000).with(segments(2, 90, 104)).with(inner(2, 62)).of("gso/vxlan outer",
			burst(vx.IPv4(c4, d4).TCP(30, 40).Payload(2000), 2, 1000)),
		vxlan.bytes(20+8+8+14+40+8+2000, 8+14+40+8+2000).with(segments(2, 98, 112)).with(inner(2, 70)).of("gso/vxlan outer, udp inside",
			burst(vx.IPv6(c6, d6).UDP(30, 40).Payload(2000), 2, 1000)),
		want4(ProtoUDP, 50000, 8472).bytes(20+8+8+14+4+40+2000, 8+14+4+40+2000).with(segments(2, 94, 108)).with(inner(2, 66)).
			of("gso/vxlan on another port, tagged",
				burst(eth4.UDP(50000, 8472).VXLAN(9).Eth().VLAN(3).IPv4(c4, d4).TCP(30, 40).Payload(2000), 2, 1000)),
		want6(ProtoUDP, 50000, PortGeneve).bytes(40+8+12+14+40+2000, 12+14+40+2000).with(segments(2, 114, 128)).with(inner(2, 66)).of("gso/geneve outer",
			burst(eth6.UDP(50000, PortGeneve).Geneve(9).Options(1, 2, 0x80, 0).Eth().IPv4(c4, d4).TCP(30, 40).Payload(2000), 2, 1000)),
		want4(ProtoGRE, 0, 0).bytes(20+8+60+2000, 8+60+2000).with(segments(2, 88, 102)).with(inner(2, 68)).of("gso/gre outer",
			burst(eth4.GRE(GREKey, 7, 0).IPv6(c6, d6).TCP(30, 40).Payload(2000), 2, 1000)),
		want4(ProtoIPIP, 0, 0).bytes(20+40+2000, 40+2000).with(segments(2, 60, 74)).with(inner(2, 40)).of("gso/ipip outer",
			burst(eth4.IPv4(c4, d4).TCP(30, 40).Payload(2000), 2, 1000)),
		want4(ProtoIPv6, 0, 0).bytes(20+60+2000, 60+2000).with(segments(2, 80, 94)).with(inner(2, 60)).of("gso/sit outer",
			burst(eth4.IPv6(c6, d6).TCP(30, 40).Payload(2000), 2, 1000)),
		vxlan.bytes(50+50+20+20+2000, 22+50+20+20+2000).with(segments(2, 140, 154)).with(inner(2, 112)).of("gso/vxlan in vxlan",
			burst(vx.IPv4(c4, d4).UDP(1, PortVXLAN).VXLAN(3).Eth().IPv4(a4, b4).TCP(30, 40).Payload(2000), 2, 1000)),
		expect(c4, d4, ProtoUDP, 1, PortVXLAN).bytes(20+8+8+14+40+2000, 8+14+40+2000).with(segments(2, 90, 50+90+14)).with(inner(2, 62)).
			tunnel(flow.TunnelVXLAN, 9).of("gso/vxlan in vxlan, inner flow",
			burst(vx.IPv4(c4, d4).UDP(1, PortVXLAN).VXLAN(3).Eth().IPv4(a4, b4).TCP(30, 40).Payload(2000), 2, 1000)).
			inside(AllTunnels),
		// The first of three tunnelled datagrams in a frame ends before it.
		vxlan.bytes(20+8+3*1000, 3*1000).with(segments(3, 28, 42)).of("gso/vxlan datagrams",
			burst(eth4.UDP(50000, PortVXLAN).Raw(slices.Repeat(datagram, 3)), 3, 1000)),
		// What is inside cannot be read: only the outer headers are known.
		vxlan.bytes(20+8+8+14+20+20+2000, 8+14+20+20+2000).with(segments(3, 28, 42)).of("gso/vxlan with a wrong inner length",
			burst(vx.IPv4(c4, d4).TotalLength(100).TCP(30, 40).Payload(2000), 3, 1000)),
		vxlan.bytes(20+8+8+14+20+2000, 8+14+20+2000).with(segments(3, 28, 42)).of("gso/vxlan with an unknown protocol",
			burst(vx.IPv4(c4, d4).NextHeader(ProtoTest).Payload(2000), 3, 1000)),
		want4(ProtoESP, 0, 0).bytes(20+8+2000, 8+2000).with(segments(3, 20, 34)).of("gso/esp",
			burst(eth4.ESP(1, 1).Payload(2000), 3, 1000)).also(ReasonGSOInexact, burst(eth4.ESP(1, 1).Payload(2000), 3, 1000)),
		want6(ProtoESP, 0, 0).bytes(40+8+8+2000, 8+2000).with(segments(3, 48, 62)).of("gso/esp behind destination options",
			burst(eth6.DestOpts().ESP(1, 1).Payload(2000), 3, 1000)).also(ReasonGSOInexact, burst(eth6.DestOpts().ESP(1, 1).Payload(2000), 3, 1000)),
		want4(ProtoGRE, 0, 0).bytes(20+4+2000, 4+2000).with(segments(3, 20, 34)).of("gso/gre with unknown content",
			burst(eth4.GRE(0, 0, 0).EtherType(0x8847).Payload(2000), 3, 1000)).
			also(ReasonGSOInexact, burst(eth4.GRE(0, 0, 0).EtherType(0x8847).Payload(2000), 3, 1000)),
		// All segments are as malformed as the frame.
		uncounted("gso/false length", ReasonMalformed, burst(eth4.TotalLength(9000).TCP(1000, 2000).Payload(2500), 3, 1000)),
		uncounted("gso/false length ipv6", ReasonMalformed, burst(eth6.PayloadLength(9000).UDP(1000, 2000).Payload(2500), 3, 1000)),
		// Longer than a length field can say: it is 0, and the frame's own length counts.
		want4(ProtoTCP, 1000, 2000).flags(ACK).bytes(20+20+70000, 70000).with(segments(50, 40, 54)).of("gso/big tcp ipv4",
			burst(eth4.TotalLength(0).TCP(1000, 2000).Payload(70000), 50, 1400)),
		want6(ProtoTCP, 1000, 2000).flags(ACK).bytes(40+20+70000, 70000).with(segments(50, 60, 74)).of("gso/big tcp ipv6",
			burst(eth6.PayloadLength(0).TCP(1000, 2000).Payload(70000), 50, 1400)),
		want6(ProtoTCP, 1000, 2000).flags(ACK).bytes(40+20+70000, 70000).with(segments(50, 60, 74)).with(func(d *flow.Delta) { d.WireBytes -= 8 }).
			of("gso/big tcp ipv6 with a jumbo option",
				burst(eth6.PayloadLength(0).HopByHop(jumbo).TCP(1000, 2000).Payload(70000), 50, 1400)),
	}
}
