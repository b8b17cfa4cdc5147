package inband_test

import (
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/wire/pdm"
)

const (
	client inband.Side = 0
	server inband.Side = 1
)

// network carries packets between two endpoints whose clocks differ, past a
// capture point. Every delay is one way.
type network struct {
	c       inband.Conversation
	ends    [2]*inband.Endpoint
	clock   [2]uint64 // what the clock of each end is ahead
	toTap   [2]uint64 // from each end to the capture point
	word    uint32
	capture []inband.Observation
}

func newNetwork(psn [2]uint16) *network {
	return &network{
		ends:  [2]*inband.Endpoint{endpoint(psn[0]), endpoint(psn[1])},
		clock: [2]uint64{0, 3600 * 1000 * ms},
		toTap: [2]uint64{3 * ms, 7 * ms},
	}
}

var epoch = time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)

// send marks a packet at time at and returns what has to happen to it.
func (n *network) send(from inband.Side, at uint64) transit {
	n.word++
	return transit{
		from: from, word: n.word,
		option: n.ends[from].Send(at + n.clock[from]),
		tap:    at + n.toTap[from],
		arrive: at + n.toTap[0] + n.toTap[1],
	}
}

type transit struct {
	from        inband.Side
	option      pdm.Option
	word        uint32
	tap, arrive uint64
}

func (n *network) pass(p transit) inband.Observation {
	o := n.c.Add(p.from, inband.Packet{Time: epoch.Add(time.Duration(p.tap)), Option: p.option, Word: p.word})
	n.capture = append(n.capture, o)
	return o
}

func (n *network) deliver(p transit) {
	to := p.from.Other()
	n.ends[to].Receive(p.option, p.word, p.arrive+n.clock[to])
}

func (n *network) carry(p transit) inband.Observation {
	o := n.pass(p)
	n.deliver(p)
	return o
}

func within(got time.Duration, want, slack uint64) bool {
	return uint64(got)+slack >= want && uint64(got) <= want+slack
}

// The capture tells the same as both ends do, and where on the path the time goes.
func TestConversation(t *testing.T) {
	n := newNetwork([2]uint16{65534, 0})
	now := uint64(0)
	for range 5 {
		n.carry(n.send(client, now))
		o := n.carry(n.send(server, now+60*ms)) // 10 ms on the way, 50 ms of thought
		if !o.HasHost || !within(o.Host, 50*ms, 50*ms>>15+1) || !o.HasPath || !within(o.Path, 14*ms, 50*ms>>15+1) {
			t.Errorf("answer: %+v", o)
		}
		now += 100 * ms // 70 ms until the answer is there, 30 ms of thought
	}
	c, s := &n.c.Sides[client], &n.c.Sides[server]
	if m := c.Network.Quantile(0.5); c.Network.Count != 4 || !within(m, 20*ms, 20*ms/500) {
		t.Errorf("network by the client's packets: %d, %v", c.Network.Count, m)
	}
	if m := s.Network.Quantile(0.5); s.Network.Count != 4 || !within(m, 20*ms, 20*ms/500) {
		t.Errorf("network by the server's packets: %d, %v", s.Network.Count, m)
	}
	if m := s.Host.Quantile(0.5); s.Host.Count != 5 || !within(m, 50*ms, 50*ms/500) {
		t.Errorf("server: %d, %v", s.Host.Count, m)
	}
	if m := c.Path.Quantile(0.5); c.Path.Count != 4 || !within(m, 6*ms, 50*ms>>14) {
		t.Errorf("path to the client: %d, %v", c.Path.Count, m)
	}
	if side, known := n.c.Initiator(); side != client || !known {
		t.Errorf("initiator %v, %v", side, known)
	}
	if c.Suspicious+s.Suspicious+c.Unpaired+s.Unpaired+c.Lost+s.Lost != 0 {
		t.Errorf("client %+v server %+v", c.SequenceCounts, s.SequenceCounts)
	}
	// The ends agree.
	if a, b := n.ends[client].Network.Quantile(0.5), c.Network.Quantile(0.5); !within(a, uint64(b), 20*ms/500) {
		t.Errorf("the client says %v, the capture %v", a, b)
	}
	if n.ends[client].Server.Count != 5 || n.ends[client].Network.Count != 5 {
		t.Errorf("the client took %d and %d samples", n.ends[client].Server.Count, n.ends[client].Network.Count)
	}
}

// Only the first packet of an answer has the server's delay.
func TestConversationLongAnswer(t *testing.T) {
	n := newNetwork([2]uint16{1, 1})
	n.carry(n.send(client, 0))
	for i := range uint64(4) {
		n.carry(n.send(server, 60*ms+i*20*ms))
	}
	o := n.carry(n.send(client, 300*ms))
	if s := &n.c.Sides[server]; s.Host.Count != 1 || !within(s.Host.Mean(), 50*ms, ms) {
		t.Errorf("server: %d samples, %v", s.Host.Count, s.Host.Mean())
	}
	// The round trip is reported by the last packet of the answer as well as by the first.
	if !o.HasNetwork || !within(o.Network, 20*ms, 110*ms>>14) {
		t.Errorf("next request: %+v", o)
	}
}

// A GSO burst is one packet to its sender, and many to everybody else.
func TestConversationBurst(t *testing.T) {
	n := newNetwork([2]uint16{1, 1})
	request := n.send(client, 0)
	for i := range uint32(10) {
		p := request
		p.word = 1000 + i
		p.tap += uint64(i) * ms / 10
		p.arrive += uint64(i) * ms / 10
		n.carry(p)
	}
	o := n.carry(n.send(server, 61*ms-ms/10)) // 50 ms after the last segment
	if !o.HasHost || !within(o.Host, 50*ms, ms/100) || !within(o.Path, 14*ms, ms/100) {
		t.Errorf("answer: %+v", o)
	}
	if c := n.c.Sides[client]; c.Copies != 9 || c.Duplicates != 0 || c.Lost != 0 {
		t.Errorf("client %+v", c.SequenceCounts)
	}
}

// Without the first packet of an answer, nobody knows the server's delay.
func TestConversationFirstOfAnswerLost(t *testing.T) {
	n := newNetwork([2]uint16{1, 1})
	n.carry(n.send(client, 0))
	n.carry(n.send(server, 20*ms))
	n.carry(n.send(client, 100*ms))
	n.send(server, 120*ms) // lost before the capture point
	o := n.carry(n.send(server, 170*ms))
	if o.Arrival != inband.Gap || o.HasHost || !o.HasPath || !within(o.Path, 14*ms, ms/10) {
		t.Errorf("behind a gap: %+v", o)
	}
	if s := &n.c.Sides[server]; s.Lost != 1 {
		t.Errorf("lost %d", s.Lost)
	}
}

func TestConversationSuspicious(t *testing.T) {
	long, longScale := pdm.Scale(500 * ms)
	for _, c := range []struct {
		name  string
		forge func(request, answer, next *pdm.Option)
		at    [3]inband.Suspicion
	}{
		{"honest", func(_, _, _ *pdm.Option) {}, [3]inband.Suspicion{}},
		{"server delay longer than the time between", func(_, a, _ *pdm.Option) { a.DeltaTLR, a.ScaleDTLR = long, longScale }, [3]inband.Suspicion{1: inband.ImpossibleTime}},
		{"delta of more than 292 years", func(_, a, _ *pdm.Option) { a.DeltaTLR, a.ScaleDTLR = 1, 255 }, [3]inband.Suspicion{1: inband.ImpossibleTime}},
		{"round trip longer than everything", func(_, _, n *pdm.Option) { n.DeltaTLS, n.ScaleDTLS = 0xFFFF, 60 }, [3]inband.Suspicion{2: inband.ImpossibleTime}},
		{"round trip of more than 292 years", func(_, _, n *pdm.Option) { n.DeltaTLS, n.ScaleDTLS = 0xFFFF, 200 }, [3]inband.Suspicion{2: inband.ImpossibleTime}},
		{"round trip below the server's delay", func(_, _, n *pdm.Option) { n.DeltaTLS, n.ScaleDTLS = pdm.Scale(30 * ms) }, [3]inband.Suspicion{2: inband.ImpossibleTime}},
		{"answer to what was never sent", func(_, a, _ *pdm.Option) { a.PSNLR = 20000 }, [3]inband.Suspicion{1: inband.ImpossiblePSN}},
		{"numbers out of all order", func(_, _, n *pdm.Option) { n.PSNTP, n.PSNLR = 30000, 20000 }, [3]inband.Suspicion{2: inband.ImpossiblePSN}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork([2]uint16{1, 1})
			one := n.send(client, 0)
			n.deliver(one)
			two := n.send(server, 60*ms)
			n.deliver(two)
			three := n.send(client, 100*ms)
			c.forge(&one.option, &two.option, &three.option)
			for _, p := range []transit{one, two, three} {
				n.pass(p)
			}
			honest := true
			for i, o := range n.capture {
				if o.Suspicion != c.at[i] {
					t.Errorf("packet %d: %q, want %q", i+1, o.Suspicion, c.at[i])
				}
				if o.Suspicion != inband.NotSuspicious {
					honest = false
					if o.HasNetwork {
						t.Errorf("packet %d is suspicious and gave a round trip of %v", i+1, o.Network)
					}
				}
			}
			if suspicious := n.c.Sides[0].Suspicious + n.c.Sides[1].Suspicious; (suspicious == 0) != honest {
				t.Errorf("suspicious %d", suspicious)
			}
			if (n.c.Sides[client].Network.Count == 1) != honest {
				t.Errorf("round trips: %d", n.c.Sides[client].Network.Count)
			}
		})
	}
}

// What a host sent before it restarted is not what its new numbers name.
func TestConversationRestart(t *testing.T) {
	n := newNetwork([2]uint16{1, 100})
	n.carry(n.send(client, 0))
	n.carry(n.send(server, 20*ms))
	n.ends[server] = endpoint(50000)
	if o := n.carry(n.send(server, 40*ms)); o.Arrival != inband.Wild || o.Suspicion != inband.ImpossiblePSN {
		t.Errorf("first packet of the new state, which proves nothing: %+v", o)
	}
	n.carry(n.send(client, 50*ms))
	if o := n.carry(n.send(server, 70*ms)); o.Arrival != inband.Restart {
		t.Errorf("first packet of the new state that answers: %+v", o)
	}
	late := pdm.Option{PSNTP: 3, PSNLR: 100, DeltaTLR: 1, ScaleDTLR: 40, DeltaTLS: 1, ScaleDTLS: 50}
	o := n.c.Add(client, inband.Packet{Time: epoch.Add(100 * time.Millisecond), Option: late, Word: 99})
	if o.HasHost || o.HasPath || o.HasNetwork {
		t.Errorf("answer to the state before: %+v", o)
	}
}

func TestConversationWithoutTimes(t *testing.T) {
	n := newNetwork([2]uint16{1, 1})
	one := n.send(client, 0)
	n.deliver(one)
	n.c.Add(client, inband.Packet{Option: one.option, Word: 1})
	two := n.send(server, 60*ms)
	n.deliver(two)
	if o := n.c.Add(server, inband.Packet{Option: two.option, Word: 1}); o.HasHost || o.HasPath {
		t.Errorf("delays by a clock that is not there: %+v", o)
	}
	if o := n.c.Add(client, inband.Packet{Option: n.send(client, 100*ms).option, Word: 1}); !o.HasNetwork {
		t.Errorf("the round trip needs no clock: %+v", o)
	}
}

func TestConversationFromTheMiddle(t *testing.T) {
	n := newNetwork([2]uint16{1, 1})
	n.deliver(n.send(client, 0))
	o := n.carry(n.send(server, 60*ms))
	if o.HasHost || o.HasPath || o.Suspicion != inband.NotSuspicious || n.c.Sides[server].Unpaired != 1 {
		t.Errorf("an answer whose request was not seen: %+v, unpaired %d", o, n.c.Sides[server].Unpaired)
	}
	if _, known := n.c.Initiator(); known {
		t.Error("the initiator cannot be known")
	}
}

// An answer is found among many packets under way, and an old one is forgotten.
func TestConversationManyUnderWay(t *testing.T) {
	n := newNetwork([2]uint16{60000, 1})
	var requests []transit
	for i := range uint64(2000) {
		p := n.send(client, i*ms/10)
		n.pass(p)
		requests = append(requests, p)
	}
	answerTo := func(p transit) inband.Observation {
		n.deliver(p)
		return n.pass(n.send(server, p.arrive+50*ms))
	}
	if o := answerTo(requests[500]); o.HasHost || o.HasPath {
		t.Errorf("answer to a packet of long ago: %+v", o)
	}
	if o := answerTo(requests[1000]); !o.HasPath || !within(o.Path, 14*ms, ms) {
		t.Errorf("answer to the 1000th before: %+v", o)
	}
	if o := answerTo(requests[1999]); !o.HasHost || !within(o.Host, 50*ms, ms) {
		t.Errorf("answer to the latest: %+v", o)
	}
}
