package flow

// Initiator says which end of a flow began the conversation.
type Initiator uint8

// A conversation whose initiator is the source of one half has it as the
// destination of the other.
const (
	InitiatorUnknown Initiator = iota
	InitiatorSrc
	InitiatorDst
)

// Opposite is the initiator as the other half of the conversation names it.
func (i Initiator) Opposite() Initiator {
	switch i {
	case InitiatorSrc:
		return InitiatorDst
	case InitiatorDst:
		return InitiatorSrc
	}
	return InitiatorUnknown
}

// Evidence says how the initiator is known, from weak to strong.
type Evidence uint8

// EvidencePorts is a guess, used where nothing else is known.
const (
	EvidenceNone      Evidence = iota
	EvidencePorts              // one port is that of a service
	EvidenceFirst              // its packet was seen first
	EvidenceRequest            // an ICMP echo request
	EvidenceHandshake          // SYN or SYN-ACK
)

// Opening is how a TCP connection begins; bits as enum opening in bpf/abi.h, or'ed
// over all packets.
type Opening uint8

// A flow of one connection has one of them at most.
const (
	OpeningSYN    Opening = 1 << 0 // SYN without ACK: the source is the initiator
	OpeningSYNACK Opening = 1 << 1 // the destination is
)

// OpeningOf is what the flags of one packet say.
func OpeningOf(tcpFlags uint16) Opening {
	switch tcpFlags & (tcpSYN | tcpACK | tcpRST | tcpFIN) {
	case tcpSYN:
		return OpeningSYN
	case tcpSYN | tcpACK:
		return OpeningSYNACK
	}
	return 0
}

// verdict is an initiator and how it is known.
type verdict struct {
	who Initiator
	by  Evidence
}

func (v verdict) opposite() verdict { return verdict{v.who.Opposite(), v.by} }

// byOrder says who began a conversation, from what was first counted of one half
// and of the other, nil: nothing. isNew tells that it began while packets were
// counted; of others, a port that clearly is a service's says more.
func byOrder(k *Key, c, back *Counts, isNew bool) verdict {
	ports := byPorts(k)
	if k.Proto == protoTCP || k.isICMP() {
		return ports // who sends first amid a connection says nothing
	}
	first := verdict{by: EvidenceFirst}
	switch {
	case back == nil, surelyBefore(c, back):
		first.who = InitiatorSrc
	case surelyBefore(back, c):
		first.who = InitiatorDst
	default:
		return ports
	}
	if !isNew && first.who != ports.who && isClear(k) {
		return ports
	}
	return first
}

// surelyBefore compares first packets by what is known of their times: ticks of
// one clock, exact times, or one of each.
func surelyBefore(a, b *Counts) bool {
	if (a.FirstSpread == 0) == (b.FirstSpread == 0) {
		return a.First < b.First
	}
	return a.lastFirst() <= b.First && a.First < b.First
}

// byMessage knows what only one side sends.
func byMessage(k *Key, c, back *Counts) verdict {
	opening, answer := c.Opening, Opening(0)
	if back != nil {
		answer = back.Opening
	}
	src := opening == OpeningSYN || answer == OpeningSYNACK
	dst := opening == OpeningSYNACK || answer == OpeningSYN
	switch {
	case k.Proto == protoTCP && src && !dst:
		return verdict{InitiatorSrc, EvidenceHandshake}
	case k.Proto == protoTCP && dst && !src:
		return verdict{InitiatorDst, EvidenceHandshake}
	case k.isICMP():
		switch k.DstPort >> 8 {
		case 8, 128: // echo request of ICMP and ICMPv6
			return verdict{InitiatorSrc, EvidenceRequest}
		case 0, 129:
			return verdict{InitiatorDst, EvidenceRequest}
		}
	}
	return verdict{}
}

func (k *Key) isICMP() bool {
	return k.Proto == protoICMP && !k.IPv6 || k.Proto == protoICMPv6 && k.IPv6
}
