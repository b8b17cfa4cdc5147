package inband

import (
	"time"

	"github.com/waymark-net/waymark/wire/pdm"
)

// Sample is what one received packet reported.
type Sample struct {
	Arrival   Arrival
	Suspicion Suspicion

	HasServer, HasNetwork bool
	Server                uint64 // ns from the request's arrival at the peer to its answer
	Network               uint64 // ns that request and answer were on their way, both together
}

// Endpoint is what one host keeps of one 5-tuple to mark its packets and to
// measure: its own agent knows when the request left, and need not wait for the
// packet that would tell a third party. A new Endpoint needs a random PSN.
type Endpoint struct {
	pdm.State
	Peer     Sequence // numbers of the peer's packets
	Lifetime uint64   // ns after which a silent peer has forgotten the flow; 0: never

	Server     Histogram // delays of the peer
	Network    Histogram // round trips
	Discarded  uint64    // packets in order that are no answer to the latest request
	Suspicious uint64

	sent         uint32 // packets
	awaiting     bool   // the latest request has no answer yet
	awaitingPath bool   // nor has its round trip been measured
}

// Send returns the option for a packet sent now.
func (e *Endpoint) Send(now uint64) pdm.Option {
	e.awaiting, e.awaitingPath = true, true
	return e.send(now)
}

// SendAcknowledgment is Send for a TCP packet without payload: it asks nothing,
// so that what comes back tells of the path, but is no answer.
func (e *Endpoint) SendAcknowledgment(now uint64) pdm.Option {
	e.awaiting, e.awaitingPath = false, true
	return e.send(now)
}

func (e *Endpoint) send(now uint64) pdm.Option {
	e.sent++
	return e.State.Send(now)
}

// Receive takes a packet received now. word is as in [Received].
func (e *Endpoint) Receive(o pdm.Option, word uint32, now uint64) Sample {
	return e.receive(o, word, false, now)
}

// Acknowledge takes a TCP packet without payload, received now: it tells of the
// path, but the answer to the request is still to come.
func (e *Endpoint) Acknowledge(o pdm.Option, word uint32, now uint64) Sample {
	return e.receive(o, word, true, now)
}

func (e *Endpoint) receive(o pdm.Option, word uint32, bare bool, now uint64) Sample {
	s := e.measure(o, word, bare, now)
	if s.Suspicion != NotSuspicious {
		e.Suspicious++
	}
	if s.Arrival.Believed() || e.Peer.rounds == 0 {
		e.State.Receive(o, now)
	}
	return s
}

func (e *Endpoint) measure(o pdm.Option, word uint32, bare bool, now uint64) Sample {
	if e.Received && e.Lifetime > 0 && since(now, e.TLR) > e.Lifetime {
		e.Peer.Forget()
	}
	highest := e.Peer.highest
	s := Sample{Arrival: e.Peer.Observe(Received{
		Option: o, Word: word, Sent: Sent{Last: e.LastSent(), Count: e.sent}, Now: now,
	})}
	switch {
	case s.Arrival == Wild:
		s.Suspicion = ImpossiblePSN
		return s
	case !s.Arrival.Ordered(), !e.Sent, !o.HasReceived():
		return s
	case o.PSNLR != e.LastSent():
		if int16(o.PSNLR-e.LastSent()) > 0 {
			s.Suspicion = ImpossiblePSN
		} else {
			e.Discarded++
		}
		return s
	case !e.mayTell(s.Arrival, o.PSNTP-highest):
		return s
	case !e.awaitingPath && (bare || !e.awaiting):
		return s // a further packet of the same answer
	}
	elapsed := since(now, e.TLS)
	if elapsed >= maxAge {
		return s
	}
	server, ok := dtlr(o)
	network := uint64(0)
	if ok {
		network, ok = rest(elapsed, server, 0)
	}
	if !ok {
		s.Suspicion = ImpossibleTime
		return s
	}
	if e.awaitingPath {
		e.awaitingPath = false
		s.Network, s.HasNetwork = network, true
		e.Network.Add(network)
	}
	if bare || !e.awaiting {
		return s
	}
	e.awaiting = false
	if follows(s.Arrival, o) {
		s.Server, s.HasServer = server, true
		e.Server.Add(server)
	}
	return s
}

// sampleAhead is how many numbers a packet that tells a round trip may be ahead.
const sampleAhead = 8

// mayTell reports whether a packet that was believed may tell delays: where a forged
// one needs both numbers. It is d numbers ahead.
func (e *Endpoint) mayTell(a Arrival, d uint16) bool {
	return !e.Peer.contested && (a != Gap || d <= sampleAhead)
}

// maxAge is the age that the kernel's programs can tell.
const maxAge = uint64(36 * time.Hour)

func since(now, then uint64) uint64 { return now - min(now, then) }
