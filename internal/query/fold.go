package query

import "github.com/waymark-net/waymark/internal/flow"

// Ends is what decides which way a record is counted, and the ports that its row has.
type Ends struct {
	Unattributed, ICMP bool
	Proto              uint8
	Direction          flow.Direction
	Initiator          flow.Initiator
	SrcPort, DstPort   uint16
}

// Turn folds the ends as the keys say, and reports whether source and destination are swapped. less reports whether the
// destination's address is the smaller one; it is called only where that decides.
func (by *By) Turn(e *Ends, less func() bool) (turned bool) {
	turned = by.Fold.turn(e, less)
	if by.Services {
		e.dropClientPort()
	}
	return turned
}

// turn folds a record.
func (by *By) turn(r *flow.Record) (turned bool) {
	if by.Fold == FoldNone && !by.Services {
		return false
	}
	e := Ends{r.Unattributed, r.ICMP(), r.Proto, r.Direction, r.Initiator, r.SrcPort, r.DstPort}
	if turned = by.Turn(&e, func() bool { return r.Dst.Less(r.Src) }); turned {
		r.Src, r.Dst = r.Dst, r.Src
	}
	r.Initiator, r.SrcPort, r.DstPort = e.Initiator, e.SrcPort, e.DstPort
	return turned
}

func (f Fold) turn(e *Ends, less func() bool) bool {
	back := false
	request, isReply := e.echoRequest()
	switch {
	case f == FoldNone || e.Unattributed:
	case f == FoldPeer:
		return e.turnToPeer()
	case f == FoldPair:
		back = less()
	case isReply:
		e.DstPort, e.Initiator = request, e.Initiator.Opposite()
		return true
	case e.ICMP:
	case e.Initiator != flow.InitiatorUnknown:
		back = e.Initiator == flow.InitiatorDst
	case e.SrcPort != e.DstPort:
		back = e.SrcPort < e.DstPort
	default:
		back = less()
	}
	if back {
		e.swap()
	}
	return back
}

func (e *Ends) swap() {
	e.SrcPort, e.DstPort = e.DstPort, e.SrcPort
	e.Initiator = e.Initiator.Opposite()
}

// turnToPeer makes the peer the source of what is sent to it.
func (e *Ends) turnToPeer() bool {
	if request, isReply := e.echoRequest(); isReply {
		e.DstPort = request
	}
	if e.Direction == flow.Ingress {
		return false
	}
	if e.swap(); e.ICMP {
		e.SrcPort, e.DstPort = e.DstPort, e.SrcPort // they are no ports
	}
	return true
}

// echoRequest is the destination port of the request that an echo reply answers.
func (e *Ends) echoRequest() (request uint16, isReply bool) {
	switch icmpType := e.DstPort >> 8; {
	case e.Proto == 1 && icmpType == 0:
		return 8 << 8, true
	case e.Proto == 58 && icmpType == 129:
		return 128 << 8, true
	}
	return 0, false
}

// dropClientPort takes away the port of the end that began the conversation, which is
// that of no service. A router sees clients among its peers, too. Where nothing says
// who began it, it is the end with the higher port.
func (e *Ends) dropClientPort() {
	client := e.Initiator
	switch {
	case e.Unattributed || e.ICMP:
		return
	case client == flow.InitiatorUnknown && e.SrcPort > e.DstPort:
		client = flow.InitiatorSrc
	case client == flow.InitiatorUnknown && e.SrcPort < e.DstPort:
		client = flow.InitiatorDst
	}
	switch client {
	case flow.InitiatorSrc:
		e.SrcPort = 0
	case flow.InitiatorDst:
		e.DstPort = 0
	}
}
