package ipfix

import "github.com/waymark-net/waymark/internal/flow"

// Values of biflowDirection (RFC 5103 section 6.3).
const (
	biflowArbitrary = 0
	biflowInitiator = 1
)

// conversation says whether b is the other half of a, counted on the same
// interface. Marked flows, and those of which rules dropped packets, stay apart: with
// what was reported of both halves, they would have more fields than collectors take.
func conversation(a, b *flow.Record) bool {
	return !a.Unattributed && !b.Unattributed && a.PDM == nil && b.PDM == nil && a.Dropped == 0 && b.Dropped == 0 &&
		a.Direction != b.Direction && a.IfIndex == b.IfIndex && a.Netns == b.Netns && a.Other == b.Other && a.OtherIfIndex == b.OtherIfIndex &&
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

// initiator orders the halves of a conversation: first the one whose source began
// it, and whether that is known, not guessed. Where there is not even a guess, the
// higher port comes first, then the smaller address, so that the order stays the
// same from interval to interval.
func initiator(a, b *flow.Record) (first, second *flow.Record, known bool) {
	swap := b.SrcPort > a.SrcPort
	switch {
	case a.Initiator != flow.InitiatorUnknown:
		swap = a.Initiator == flow.InitiatorDst
	case b.Initiator != flow.InitiatorUnknown:
		swap = b.Initiator == flow.InitiatorSrc
	case a.ICMP():
		swap = echo(b, a)
	case a.SrcPort == b.SrcPort:
		swap = b.Src.Less(a.Src)
	}
	known = max(a.InitiatorBy, b.InitiatorBy) > flow.EvidencePorts
	if swap {
		a, b = b, a
	}
	return a, b, known
}
