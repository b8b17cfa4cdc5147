package inband

import (
	"time"
	"unsafe"

	"github.com/waymark-net/waymark/wire/pdm"
)

// Side is one of the two hosts of a conversation.
type Side uint8

// Other is the side that is not s.
func (s Side) Other() Side { return 1 - s }

// Packet is a marked packet as it passed the capture point.
type Packet struct {
	Time   time.Time // zero where the capture does not tell
	Option pdm.Option
	Word   uint32 // as in Received
	Bare   bool   // TCP without payload: it acknowledges, but neither asks nor answers
}

// Observation is what one packet reported of the host that sent it.
type Observation struct {
	Arrival   Arrival
	Suspicion Suspicion

	HasHost, HasPath, HasNetwork bool
	Host                         time.Duration // from the arrival of the other's packet to this answer
	Path                         time.Duration // from the capture point to the host and back
	Network                      time.Duration // from the host to the other and back, by the host's own clock
}

// SideStats is what the packets of one side reported.
type SideStats struct {
	Sequence
	Host       Histogram // the host's own delay before it answers: of a responder, the server's
	Path       Histogram // round trips between capture point and host
	Network    Histogram // round trips from host to host, reported by this one
	Unpaired   uint64    // packets in order whose PSNLR names no packet seen
	Suspicious uint64

	recent    recent
	answers   uint16 // PSNLR of the newest packet
	answering bool   // answers is set
}

// Conversation is both halves of a 5-tuple, seen from anywhere on the path. The
// zero value is empty.
type Conversation struct {
	Sides [2]SideStats

	initiator      Side
	initiatorKnown bool
}

// Bytes is what a conversation takes of memory.
func (c *Conversation) Bytes() int {
	return int(unsafe.Sizeof(*c)) + c.Sides[0].recent.bytes() + c.Sides[1].recent.bytes()
}

// Initiator is the side that sent while it had received nothing. It is not known
// when the capture began later.
func (c *Conversation) Initiator() (s Side, known bool) { return c.initiator, c.initiatorKnown }

const (
	// captureSlack is how inexactly captures tell when a packet passed: interrupt
	// coalescing and mirror ports make it hundreds of microseconds.
	captureSlack = time.Millisecond
	// maxJitter is how much longer one packet may be on its way than the next
	// before the numbers they carry count as impossible.
	maxJitter = time.Second
)

// Add takes the next packet that passed, which side from sent.
func (c *Conversation) Add(from Side, p Packet) Observation {
	s, peer := &c.Sides[from], &c.Sides[from.Other()]
	if !c.initiatorKnown && !p.Option.HasReceived() {
		c.initiator, c.initiatorKnown = from, true
	}
	o := s.observe(peer, p)
	if o.Suspicion != NotSuspicious {
		s.Suspicious++
	}
	if o.HasHost {
		s.Host.Add(uint64(o.Host))
	}
	if o.HasPath {
		s.Path.Add(uint64(o.Path))
	}
	if o.HasNetwork {
		s.Network.Add(uint64(o.Network))
	}
	return o
}

func (s *SideStats) observe(peer *SideStats, p Packet) Observation {
	r := Received{Option: p.Option, Word: p.Word, Sent: peer.sent()}
	if !p.Time.IsZero() {
		r.Now = uint64(p.Time.UnixNano())
	}
	o := Observation{Arrival: s.Observe(r)}
	switch o.Arrival {
	case Wild:
		o.Suspicion = ImpossiblePSN
		return o
	case Copy:
		// The other host counts from the last segment of the burst.
		s.recent.touch(p.Option.PSNTP, p.Time)
		return o
	case Duplicate, Late:
		return o
	case Restart:
		s.recent = recent{}
		s.answering = false
	}
	s.answer(peer, p, &o)
	s.recent.put(passed{Packet: p, suspicious: o.Suspicion != NotSuspicious})
	if o.Arrival.Ordered() && !p.Bare {
		s.answers, s.answering = p.Option.PSNLR, p.Option.HasReceived()
	}
	return o
}

// answer measures p against the packet of peer that its PSNLR names.
func (s *SideStats) answer(peer *SideStats, p Packet, o *Observation) {
	if !p.Option.HasReceived() {
		return
	}
	named, ok := peer.recent.get(p.Option.PSNLR)
	if !ok {
		newest, seen := peer.Highest()
		if seen && int16(p.Option.PSNLR-newest) > MaxGap {
			o.Suspicion = ImpossiblePSN
		} else if o.Arrival.Ordered() {
			s.Unpaired++
		}
		return
	}
	first := o.Arrival.Ordered() && !p.Bare && !named.Bare && !(s.answering && s.answers == p.Option.PSNLR)
	if first && !named.Time.IsZero() && !p.Time.IsZero() {
		host(named, p, o)
	}
	if o.Suspicion == NotSuspicious && !named.suspicious {
		s.network(named, p, o)
	}
}

// host takes the answering host's delay from p, its first packet since named
// passed, and leaves of the time between them what the path to the host took.
func host(named passed, p Packet, o *Observation) {
	between := uint64(max(0, p.Time.Sub(named.Time)))
	delay, ok := dtlr(p.Option)
	var path uint64
	if ok {
		path, ok = rest(between, delay, uint64(captureSlack))
	}
	if !ok {
		o.Suspicion = ImpossibleTime
		return
	}
	o.Path, o.HasPath = time.Duration(path), true
	if follows(o.Arrival, p.Option) {
		o.Host, o.HasHost = time.Duration(delay), true
	}
}

// network takes the round trip that p tells of, when named is the answer to the
// packet that its sender sent directly before p (RFC 8250 section 1.5 pairs them
// by number).
func (s *SideStats) network(named passed, p Packet, o *Observation) {
	if !named.Option.HasReceived() || named.Option.PSNLR != p.Option.PSNTP-1 {
		return
	}
	whole, ok := dtls(p.Option)
	if !ok {
		o.Suspicion = ImpossibleTime
		return
	}
	if before, seen := s.recent.get(p.Option.PSNTP - 1); seen && !before.Time.IsZero() && !p.Time.IsZero() {
		between := uint64(max(0, p.Time.Sub(before.Time)))
		if _, ok := rest(between, whole, uint64(maxJitter)); !ok {
			o.Suspicion = ImpossibleTime
			return
		}
	}
	part, ok := dtlr(named.Option)
	if ok {
		part, ok = rest(whole, part, 0)
	}
	if !ok {
		o.Suspicion = ImpossibleTime
		return
	}
	o.Network, o.HasNetwork = time.Duration(part), true
}
