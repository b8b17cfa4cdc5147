package packet

import (
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
)

// fragmentCases: a datagram of 4000 bytes in fragments of 1480 (IPv4) or 1448
// (IPv6) bytes is three packets, whose payload has the UDP header only once.
func fragmentCases() []Case {
	whole4 := frames(eth4.UDP(1000, 2000).Payload(4000).Split(1480, 7))
	whole6 := frames(eth6.Fragment(0, false, 7).UDP(1000, 2000).Payload(4000).Split(1448, 7))
	behind6 := frames(eth6.HopByHop().Fragment(0, false, 7).DestOpts().UDP(1000, 2000).Payload(100).Split(56, 7))
	ahInside := frames(eth4.AH(7, 1, 12).UDP(1000, 2000).Payload(100).Split(64, 9))
	echo6 := frames(eth6.Fragment(0, false, 8).ICMPv6(EchoRequestV6, 0, 77, 1).Payload(200).Split(104, 8))

	udp4, udp6 := want4(ProtoUDP, 1000, 2000), want6(ProtoUDP, 1000, 2000)
	count := func(n uint64) func(*flow.Delta) {
		return func(d *flow.Delta) { d.Packets, d.Fragments = n, n }
	}
	later4 := frame(eth4.Frag(1480, true, 7).NextHeader(ProtoUDP).Payload(1480))
	later6 := frame(eth6.Fragment(1448, false, 7).NextHeader(ProtoUDP).Payload(100))
	return []Case{
		udp4.bytes(3*20+8+4000, 4000).with(count(3)).of("fragment/ipv4", whole4...),
		udp6.bytes(3*48+8+4000, 4000).with(count(3)).of("fragment/ipv6", whole6...),
		udp6.bytes(3*56+8+8+100, 100).with(count(3)).of("fragment/ipv6 between headers", behind6...),
		udp4.bytes(3*20+24+8+100, 100).with(count(3)).of("fragment/ipv4 with ah", ahInside...),
		want6(ProtoICMPv6, 77, 128<<8).bytes(2*48+8+200, 200).with(count(2)).of("fragment/icmpv6 echo", echo6...),
		want4(ProtoTCP, 1000, 2000).flags(PSH|ACK).bytes(2*20+20+100, 100).with(count(2)).of("fragment/tcp",
			frames(eth4.TCP(1000, 2000).Flags(PSH|ACK).Payload(100).Split(64, 3))...),
		want4(ProtoTest, 0, 0).bytes(2*20+100, 100).with(count(2)).of("fragment/unknown protocol",
			frames(eth4.Payload(100).Split(64, 3))...),

		want4(ProtoUDP, 0, 0).bytes(20+1480, 1480).with(count(1)).of("fragment/ipv4 unmatched", later4).
			also(ReasonFragmentUnmatched, later4),
		want6(ProtoUDP, 0, 0).bytes(48+100, 100).with(count(1)).of("fragment/ipv6 unmatched", later6).
			also(ReasonFragmentUnmatched, later6),
		want6(ProtoDestOpts, 0, 0).bytes(56+56, 56).with(count(1)).of("fragment/ipv6 unmatched, extension inside", behind6[1]).
			also(ReasonFragmentUnmatched, behind6[1]),
		want4(ProtoAH, 0, 0).bytes(20+64, 64).with(count(1)).of("fragment/ipv4 unmatched, ah inside", ahInside[1]).
			also(ReasonFragmentUnmatched, ahInside[1]),
		reordered("fragment/ipv4 first comes last", whole4, udp4),
		otherID("fragment/ipv4 other id", whole4, udp4),
		otherVLAN("fragment/ipv4 other vlan", whole4, udp4),

		// The whole packet with a Fragment header is none (RFC 6946).
		udp6.bytes(40+8+8+5, 5).of("fragment/atomic", frame(eth6.Fragment(0, false, 7).UDP(1000, 2000).Payload(5))),
		udp6.bytes(40+8+8+8, 0).of("fragment/atomic before options", frame(eth6.Fragment(0, false, 7).DestOpts().UDP(1000, 2000))),

		uncounted("fragment/first too short for tcp", ReasonMalformed, frame(eth4.Frag(0, true, 7).NextHeader(ProtoTCP).Payload(8))),
		uncounted("fragment/header cut short", ReasonMalformed, frame(eth6.NextHeader(44).Raw([]byte{17, 0, 0, 1}))),
		// A later fragment is not looked into, whatever it begins with.
		want6(ProtoTCP, 0, 0).bytes(48+3, 3).with(count(1)).of("fragment/later of three bytes", shortLater).
			also(ReasonFragmentUnmatched, shortLater),
	}
}

var shortLater = frame(eth6.Fragment(64, false, 7).NextHeader(ProtoTCP).Payload(3))

// reordered: later fragments that come before the first belong to a flow without ports.
func reordered(name string, whole []Frame, udp want) Case {
	order := []Frame{whole[2], whole[1], whole[0]}
	c := udp.bytes(20+1480, 1472).with(oneFragment).of(name, order[2])
	rest := want4(ProtoUDP, 0, 0).bytes(2*20+1480+1048, 1480+1048).with(func(d *flow.Delta) {
		d.Packets, d.Fragments = 2, 2
	}).of("", order[:2]...)
	c.Frames, c.Flows = order, slices.Concat(c.Flows, rest.Flows)
	return c.also(ReasonFragmentUnmatched, order[:2]...)
}

// otherID: a later fragment of another packet between the same hosts.
func otherID(name string, whole []Frame, udp want) Case {
	stray := frame(eth4.Frag(1480, false, 8).NextHeader(ProtoUDP).Payload(40))
	c := udp.bytes(20+1480, 1472).with(oneFragment).of(name, whole[0])
	rest := want4(ProtoUDP, 0, 0).bytes(20+40, 40).with(oneFragment).of("", stray)
	c.Frames, c.Flows = append(c.Frames, stray), slices.Concat(c.Flows, rest.Flows)
	return c.also(ReasonFragmentUnmatched, stray)
}

// otherVLAN: a later fragment of a packet between hosts of another VLAN, which may
// have the same addresses.
func otherVLAN(name string, whole []Frame, udp want) Case {
	stray := frame(Eth().VLAN(5).IPv4(a4, b4).Frag(1480, false, 7).NextHeader(ProtoUDP).Payload(40))
	c := udp.bytes(20+1480, 1472).with(oneFragment).of(name, whole[0])
	rest := want4(ProtoUDP, 0, 0).vlan(5, 0).bytes(20+40, 40).with(oneFragment).of("", stray)
	c.Frames, c.Flows = append(slices.Clip(c.Frames), stray), slices.Concat(c.Flows, rest.Flows)
	return c.also(ReasonFragmentUnmatched, stray)
}

func oneFragment(d *flow.Delta) { d.Fragments = 1 }
