package packet

import "github.com/waymark-net/waymark/internal/flow"

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
	tagged := burst(eth6.TCP(1000, 2000).Payload(2500), 3, 1000)
	tagged.Tag = &Tag{TypeVLAN, 5}
	return []Case{
		want4(ProtoTCP, 1000, 2000).flags(ACK).octets(20+32+2500, 2500).with(segments(3, 52, 66)).of("gso/tcp",
			burst(eth4.TCP(1000, 2000).Options(timestamps()...).Payload(2500), 3, 1000)),
		want6(ProtoTCP, 1000, 2000).flags(ACK).octets(40+20+2500, 2500).with(segments(3, 60, 78)).vlan(5, 0).of("gso/tcp ipv6 tagged",
			tagged),
		want6(ProtoUDP, 1000, 2000).octets(40+8+8+3000, 3000).with(segments(3, 56, 70)).of("gso/udp behind hop-by-hop",
			burst(eth6.HopByHop().UDP(1000, 2000).Payload(3000), 3, 1000)),
		want4(ProtoTCP, 1000, 2000).flags(ACK).octets(20+20+900, 900).of("gso/one segment",
			burst(eth4.TCP(1000, 2000).Payload(900), 1, 1000)),
		expect(c4, d4, ProtoTCP, 30, 40).flags(ACK).octets(20+20+2000, 2000).with(segments(2, 40, 14+20+8+8+14+40)).
			tunnel(flow.TunnelVXLAN, 9).of("gso/vxlan",
			burst(eth4.UDP(50000, PortVXLAN).VXLAN(9).Eth().IPv4(c4, d4).TCP(30, 40).Payload(2000), 2, 1000)).
			inside(AllTunnels),
		// Longer than a length field can say: it is 0, and the frame's own length counts.
		want4(ProtoTCP, 1000, 2000).flags(ACK).octets(20+20+70000, 70000).with(segments(50, 40, 54)).of("gso/big tcp ipv4",
			burst(eth4.TotalLength(0).TCP(1000, 2000).Payload(70000), 50, 1400)),
		want6(ProtoTCP, 1000, 2000).flags(ACK).octets(40+20+70000, 70000).with(segments(50, 60, 74)).of("gso/big tcp ipv6",
			burst(eth6.PayloadLength(0).TCP(1000, 2000).Payload(70000), 50, 1400)),
	}
}
