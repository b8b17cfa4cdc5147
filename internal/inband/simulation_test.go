package inband_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/inband"
)

// sent is a packet and what its sender knew, by identity and not by number.
type sent struct {
	transit
	at       uint64
	received *sent  // packet last received before, nil: none
	when     uint64 // and when
	previous *sent  // packet sent before, nil: none
	first    bool   // no packet was sent before with the same received
}

// event is something that happens to a packet: it is sent, passes the capture
// point, or arrives.
type event struct {
	at   uint64
	step int
	from inband.Side
	p    *sent
}

const (
	stepSend = iota
	stepTap
	stepArrive
)

// simulation runs both ends over a network that loses, doubles, delays and
// reorders, and keeps what really happened.
type simulation struct {
	network
	events  []event
	latest  [2]*sent // sent by each end
	arrived [2]*sent // at each end
	when    [2]uint64
	log     []*sent // packet of each observation
	tapped  [2][]*sent
}

func (s *simulation) run(t *rapid.T) {
	for len(s.events) > 0 {
		next := 0
		for i, e := range s.events {
			if cmp.Or(cmp.Compare(e.at, s.events[next].at), cmp.Compare(e.step, s.events[next].step)) < 0 {
				next = i
			}
		}
		e := s.events[next]
		s.events = slices.Delete(s.events, next, next+1)
		s.happen(t, e)
	}
}

func (s *simulation) happen(t *rapid.T, e event) {
	switch e.step {
	case stepSend:
		p := &sent{at: e.at, received: s.arrived[e.from], when: s.when[e.from], previous: s.latest[e.from]}
		p.first = p.received != nil && (p.previous == nil || p.previous.received != p.received)
		p.transit = s.send(e.from, e.at)
		s.latest[e.from] = p
		copies := rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 2, 0}).Draw(t, "copies")
		for range copies {
			tap := e.at + s.toTap[e.from] + rapid.Uint64Range(0, 5*ms).Draw(t, "jitter")
			s.events = append(s.events, event{tap, stepTap, e.from, p})
		}
	case stepTap:
		s.log = append(s.log, e.p)
		s.tapped[e.from] = append(s.tapped[e.from], e.p)
		p := e.p.transit
		p.tap = e.at
		s.pass(p)
		if rapid.IntRange(0, 9).Draw(t, "lost behind") > 0 {
			at := e.at + s.toTap[e.from.Other()] + rapid.Uint64Range(0, 5*ms).Draw(t, "jitter")
			s.events = append(s.events, event{at, stepArrive, e.from, e.p})
		}
	case stepArrive:
		p := e.p.transit
		p.arrive = e.at
		s.deliver(p)
		to := e.from.Other()
		s.arrived[to], s.when[to] = e.p, e.at
	}
}

// Whatever the network does, the counts are what it did, and every delay that is
// reported is a true one: of the right packets, and to the precision of 16 bits.
func TestConversationAgainstSimulation(t *testing.T) {
	var hosts, paths, networks int
	rapid.Check(t, func(t *rapid.T) {
		s := simulation{network: *newNetwork([2]uint16{rapid.Uint16().Draw(t, "client psn"), rapid.Uint16().Draw(t, "server psn")})}
		for _, side := range []inband.Side{client, server} {
			at := uint64(0)
			for range rapid.IntRange(1, 30).Draw(t, "packets") {
				at += rapid.Uint64Range(ms, 60*ms).Draw(t, "gap")
				s.events = append(s.events, event{at, stepSend, side, nil})
			}
		}
		s.run(t)
		for i, o := range s.capture {
			p := s.log[i]
			if o.Suspicion != inband.NotSuspicious {
				t.Fatalf("packet %d: honest, and %q", i, o.Suspicion)
			}
			if o.HasHost {
				hosts++
				if want := p.at - p.when; !p.first || !within(o.Host, want, want>>15+1) {
					t.Fatalf("packet %d: host %v, want %v; first %v", i, o.Host, time.Duration(want), p.first)
				}
			}
			if o.HasPath {
				paths++
				if p.received == nil || o.Path > 60*time.Millisecond {
					t.Fatalf("packet %d: path %v", i, o.Path)
				}
			}
			if o.HasNetwork {
				networks++
				answer, request := p.received, p.previous
				if answer.received != request {
					t.Fatalf("packet %d: a round trip of two packets that are no request and answer", i)
				}
				want := (p.when - request.at) - (answer.at - answer.when)
				if !within(o.Network, want, (p.when-request.at)>>14+2) {
					t.Fatalf("packet %d: network %v, want %v", i, o.Network, time.Duration(want))
				}
			}
		}
		for side := range s.c.Sides {
			checkCounts(t, s.tapped[side], s.c.Sides[side].SequenceCounts)
		}
	})
	if hosts == 0 || paths == 0 || networks == 0 {
		t.Errorf("reported: %d hosts, %d paths, %d round trips", hosts, paths, networks)
	}
}

// checkCounts compares with the packets themselves, in the order they passed.
func checkCounts(t *rapid.T, passed []*sent, got inband.SequenceCounts) {
	want := inband.SequenceCounts{Packets: uint64(len(passed))}
	seen := map[*sent]bool{}
	lowest, highest := 1<<30, 0
	for _, p := range passed {
		n := 0 // number of the packet at its sender
		for q := p; q != nil; q = q.previous {
			n++
		}
		switch {
		case seen[p]:
			want.Duplicates++
		case n < highest:
			want.Reordered++
		}
		seen[p] = true
		lowest, highest = min(lowest, n), max(highest, n)
	}
	if len(seen) > 0 {
		want.Lost = uint64(highest - lowest + 1 - len(seen))
	}
	if got != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
}
