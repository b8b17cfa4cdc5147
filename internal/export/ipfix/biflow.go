package ipfix

import "github.com/waymark-net/waymark/internal/flow"

const (
	protoTCP = 6
	tcpSYN   = 0x02
	tcpACK   = 0x10
)

// Values of biflowDirection (RFC 5103 section 6.3).
const (
	biflowArbitrary = 0
	biflowInitiator = 1
)

// conversation says whether b is the other half of a, counted on the same
// interface. Marked flows stay apart: with what PDM told of both halves, they
// would have more fields than collectors take.
func conversation(a, b *flow.Record) bool {
	return !a.Unattributed && !b.Unattributed && a.PDM == nil && b.PDM == nil &&
		a.Direction != b.Direction && a.IfIndex == b.IfIndex && a.Netns == b.Netns &&
		a.Family == b.Family && a.Src == b.Dst && a.Dst == b.Src && reversePorts(a, b) &&
		a.VLAN == b.VLAN && a.InnerVLAN == b.InnerVLAN && a.Tunnel == b.Tunnel && a.VNI == b.VNI
}

// reversePorts compares protocol and ports; of ICMP only echo has two halves.
func reversePorts(a, b *flow.Record) bool {
	if a.Proto != b.Proto {
		return false
	}
	if !a.ICMP() {
		return a.SrcPort == b.DstPort && a.DstPort == b.SrcPort
	}
	return a.SrcPort == b.SrcPort && (echo(a, b) || echo(b, a))
}

// echo says whether the types are those of a request and its reply.
func echo(request, reply *flow.Record) bool {
	switch request.DstPort >> 8 {
	case 8:
		return reply.DstPort>>8 == 0
	case 128:
		return reply.DstPort>>8 == 129
	}
	return false
}

// initiator orders the halves of a conversation: first the one whose source
// began it, and whether that is known. Who sent a SYN without an ACK began, or
// the echo request, else the half whose first packet is the earlier. In TCP
// without a SYN in this interval either may be earlier; there the higher port
// comes first, so that the order stays the same from interval to interval.
func initiator(a, b *flow.Record) (first, second *flow.Record, known bool) {
	swap, known := b.First.Before(a.First), true
	switch {
	case a.Proto == protoTCP && opening(a) != opening(b):
		swap = opening(b)
	case a.Proto == protoTCP && (a.TCPFlags|b.TCPFlags)&tcpSYN == 0:
		known = false
		if a.SrcPort != b.SrcPort {
			swap = b.SrcPort > a.SrcPort
		}
	case a.ICMP():
		swap = echo(b, a)
	}
	if swap {
		a, b = b, a
	}
	return a, b, known
}

// opening says that the half has a SYN and no ACK.
func opening(r *flow.Record) bool { return r.TCPFlags&(tcpSYN|tcpACK) == tcpSYN }
