package query

import "github.com/waymark-net/waymark/internal/flow"

// turn swaps source and destination of r where the fold wants it, and tells
// whether it did.
func (f Fold) turn(r *flow.Record) bool {
	if f == FoldNone || r.Unattributed {
		return false
	}
	if f == FoldPeer {
		return turnToPeer(r)
	}
	back := r.Dst.Less(r.Src)
	if f == FoldConversation {
		request, isReply := echoRequest(r)
		switch {
		case isReply:
			r.Src, r.Dst, r.DstPort = r.Dst, r.Src, request
			r.Initiator = r.Initiator.Opposite()
			return true
		case r.ICMP():
			return false
		case r.Initiator != flow.InitiatorUnknown:
			back = r.Initiator == flow.InitiatorDst
		case r.SrcPort != r.DstPort:
			back = r.SrcPort < r.DstPort
		}
	}
	if back {
		swapEnds(r)
	}
	return back
}

func swapEnds(r *flow.Record) {
	r.Src, r.Dst = r.Dst, r.Src
	r.SrcPort, r.DstPort = r.DstPort, r.SrcPort
	r.Initiator = r.Initiator.Opposite()
}

// turnToPeer makes the peer the source of what is sent to it.
func turnToPeer(r *flow.Record) bool {
	if request, isReply := echoRequest(r); isReply {
		r.DstPort = request
	}
	if r.Direction == flow.Ingress {
		return false
	}
	swapEnds(r)
	if r.ICMP() {
		r.SrcPort, r.DstPort = r.DstPort, r.SrcPort // they are no ports
	}
	return true
}

// echoRequest is the destination port of the request that an echo reply answers.
func echoRequest(r *flow.Record) (request uint16, isReply bool) {
	switch icmpType := r.DstPort >> 8; {
	case r.Proto == 1 && icmpType == 0:
		return 8 << 8, true
	case r.Proto == 58 && icmpType == 129:
		return 128 << 8, true
	}
	return 0, false
}

// dropClientPort takes away the port of the end that began the conversation, which is
// that of no service. A router sees clients among its peers, too. Where nothing says
// who began it, it is the end with the higher port.
func dropClientPort(r *flow.Record) {
	client := r.Initiator
	switch {
	case r.Unattributed || r.ICMP():
		return
	case client == flow.InitiatorUnknown && r.SrcPort > r.DstPort:
		client = flow.InitiatorSrc
	case client == flow.InitiatorUnknown && r.SrcPort < r.DstPort:
		client = flow.InitiatorDst
	}
	switch client {
	case flow.InitiatorSrc:
		r.SrcPort = 0
	case flow.InitiatorDst:
		r.DstPort = 0
	}
}
