package inband_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/wire/pdm"
)

// exchange is two hosts with a request every 500 ms, answered after 20 ms on the
// server, 1 ms of network each way.
type exchange struct {
	client, server *inband.Endpoint
	now            uint64
	word           uint32
}

const lifetime = 60_000 * ms

func newExchange() *exchange {
	x := &exchange{client: endpoint(100), server: endpoint(60000), now: 1000 * ms}
	x.client.Lifetime, x.server.Lifetime = lifetime, lifetime
	return x
}

// run takes n requests and their answers. Between them, the client gets what
// between sends.
func (x *exchange) run(n int, between func(e *inband.Endpoint, now uint64)) {
	for range n {
		x.word++
		x.server.Receive(x.client.Send(x.now), x.word, x.now+1*ms)
		between(x.client, x.now+10*ms)
		x.client.Receive(x.server.Send(x.now+21*ms), x.word, x.now+22*ms)
		between(x.client, x.now+100*ms)
		x.now += 500 * ms
	}
}

func nobody(*inband.Endpoint, uint64) {}

// reported is what a user sees of a flow, without what is said to be suspicious.
type reported struct {
	Server, Network inband.Histogram
	Counts          inband.SequenceCounts
	Discarded       uint64
}

func report(e *inband.Endpoint) reported {
	c := e.Peer.SequenceCounts
	c.Late, c.Wild = 0, 0
	return reported{e.Server, e.Network, c, e.Discarded}
}

// forgery draws a packet of somebody who knows all but the numbers of the flow.
func forgery(t *rapid.T) pdm.Option {
	psn := rapid.Uint16().Draw(t, "psn")
	return rapid.SampledFrom([]pdm.Option{
		{PSNTP: psn}, // restarted
		{PSNTP: psn, DeltaTLS: 1, ScaleDTLS: 40},
		{PSNTP: psn, PSNLR: rapid.Uint16().Draw(t, "psnlr"), DeltaTLR: rapid.Uint16().Draw(t, "dtlr"), ScaleDTLR: 30},
		{PSNTP: psn, PSNLR: rapid.Uint16().Draw(t, "psnlr"), DeltaTLS: 1, ScaleDTLS: 40},
	}).Draw(t, "forgery")
}

// What is measured, and what the client sends, is the same with and without an
// attacker who does not guess a number that the client sent and was not named yet.
func TestAttackerChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alone, attacked := newExchange(), newExchange()
		alone.run(1, nobody)
		attacked.run(1, nobody)
		forged := uint64(0)
		const rounds = 40
		alone.run(rounds, nobody)
		attacked.run(rounds, func(e *inband.Endpoint, now uint64) {
			o := forgery(t)
			highest, _ := e.Peer.Highest()
			if e.LastSent()-o.PSNLR < 64 || highest-o.PSNTP < 64 {
				return // a guess: see TestGuessing
			}
			for i := range uint16(rapid.IntRange(1, 6).Draw(t, "in a row")) {
				e.Receive(o, uint32(i), now)
				o.PSNTP++
				forged++
			}
		})
		if d := cmp.Diff(report(alone.client), report(attacked.client)); d != "" {
			t.Fatalf("the client measures something else: %s", d)
		}
		if d := cmp.Diff(report(alone.server), report(attacked.server)); d != "" {
			t.Fatalf("the server measures something else: %s", d)
		}
		if n := alone.client.Network.Count; n != rounds+1 {
			t.Fatalf("%d of %d round trips", n, rounds+1)
		}
		c := &attacked.client.Peer
		if c.Late+c.Wild != forged || attacked.client.Suspicious != c.Wild {
			t.Fatalf("of %d forged packets %d are suspicious, %d wild and %d late", forged, attacked.client.Suspicious, c.Wild, c.Late)
		}
	})
}

// What an attacker has to guess, as SECURITY.md has it: a packet is believed with a
// probability of 2^-20, and tells a delay with one of 2^-29.
func TestGuessing(t *testing.T) {
	x := newExchange()
	x.run(50, nobody)
	x.client.Send(x.now) // and the answer is awaited
	r := rand.New(rand.NewPCG(1, 2))
	const packets = 8_000_000
	believed, delays := 0, 0
	e := *x.client
	for range packets {
		n := r.Uint64()
		s := e.Receive(pdm.Option{PSNTP: uint16(n), PSNLR: uint16(n >> 16), DeltaTLR: 1}, 0, x.now+1*ms)
		if s.Arrival.Believed() {
			believed++
			e = *x.client
		}
		if s.HasNetwork {
			delays++
		}
	}
	// 127 numbers, and 33 that they may name.
	if want := packets * (127.0 / (1 << 16)) * (33.0 / (1 << 16)); float64(believed) > 2*want || float64(believed) < want/2 {
		t.Errorf("%d of %d packets were believed, want some %.1f", believed, packets, want)
	}
	if delays > 2 {
		t.Errorf("%d of %d packets reported a delay", delays, packets)
	}
	if e.Peer.Restarts > 0 {
		t.Errorf("%d restarts", e.Peer.Restarts)
	}
	if e.Peer.Wild == 0 || e.Suspicious < e.Peer.Wild {
		t.Errorf("%d wild, %d suspicious", e.Peer.Wild, e.Suspicious)
	}
}

// Whoever knows what the client sent, but not what the server sends, does not take
// over while the server is there.
func TestNoTakeOver(t *testing.T) {
	x := newExchange()
	x.run(10, nobody)
	psn := uint16(20000)
	x.run(40, func(e *inband.Endpoint, now uint64) {
		for range 8 {
			psn++
			e.Receive(pdm.Option{PSNTP: psn, PSNLR: e.LastSent(), DeltaTLR: 1}, 0, now)
		}
	})
	if c := &x.client.Peer; c.Restarts != 0 || c.Lost != 0 || x.client.Network.Count != 50 || x.client.Server.Count != 50 {
		t.Errorf("%+v, %d round trips", c.SequenceCounts, x.client.Network.Count)
	}
}

// Somebody who guessed what is named before anything is established is found out
// by the answer: neither is measured until one has proofs.
func TestContested(t *testing.T) {
	x := newExchange()
	x.run(1, func(e *inband.Endpoint, now uint64) {
		e.Receive(pdm.Option{PSNTP: 7, PSNLR: e.LastSent()}, 0, now)
	})
	if !x.client.Peer.Contested() {
		t.Fatalf("%+v", x.client.Peer.SequenceCounts)
	}
	before := x.client.Network.Count
	x.run(2, nobody)
	if n := x.client.Network.Count; n != before {
		t.Errorf("%d round trips while it is contested", n-before)
	}
	x.run(10, nobody)
	if n := x.client.Network.Count; x.client.Peer.Contested() || n < before+9 {
		t.Errorf("%d round trips after", n-before)
	}
}

// Whoever tries one name after the other for each number of a new sequence does not
// establish it: a wrong guess ends it.
func TestNoTakeOverByTrial(t *testing.T) {
	x := newExchange()
	x.run(10, nobody)
	psn := uint16(20000)
	for range 100 { // less than the lifetime of a state
		x.now += 500 * ms
		x.client.Send(x.now) // nobody answers
		for guess := range 1 << 16 {
			before := x.client.Peer.Wild
			x.client.Receive(pdm.Option{PSNTP: psn, PSNLR: uint16(guess), DeltaTLR: 1}, 0, x.now+1*ms)
			if x.client.Peer.Wild == before {
				t.Fatalf("believed: %+v", x.client.Peer.SequenceCounts)
			}
		}
		psn++
	}
	if c := &x.client.Peer; c.Restarts != 0 || c.Lost != 0 {
		t.Errorf("%+v", c.SequenceCounts)
	}
}

// An attacker who guesses nothing does not delay that either.
func TestRestartIsFollowedDespiteForgery(t *testing.T) {
	x := newExchange()
	x.run(20, nobody)
	x.server = endpoint(30000)
	x.server.Lifetime = lifetime
	r := rand.New(rand.NewPCG(3, 4))
	trickle := func(e *inband.Endpoint, now uint64) {
		for range 5 {
			// Numbers that are neither the old ones nor those of the new sequence.
			o := pdm.Option{PSNTP: 40000 + uint16(r.UintN(20000)), PSNLR: e.LastSent() + 1000 + uint16(r.UintN(60000)), DeltaTLR: 1}
			e.Receive(o, 0, now)
			e.Receive(pdm.Option{PSNTP: o.PSNTP}, 0, now)
		}
	}
	x.run(6, trickle)
	before := x.client.Network.Count
	x.run(20, trickle)
	if got := x.client.Network.Count - before; got != 20 || x.client.Peer.Restarts != 1 {
		t.Errorf("%d round trips of 20, %+v", got, x.client.Peer.SequenceCounts)
	}
}

// A host that lost its state is followed again after a few exchanges, whichever it is.
func TestRestartIsFollowed(t *testing.T) {
	for _, which := range []string{"client", "server", "both"} {
		x := newExchange()
		x.run(20, nobody)
		if which != "server" {
			x.client = endpoint(1)
			x.client.Lifetime = lifetime
		}
		if which != "client" {
			x.server = endpoint(30000)
			x.server.Lifetime = lifetime
		}
		x.run(8, nobody)
		before := [2]uint64{x.client.Network.Count, x.server.Network.Count}
		x.run(20, nobody)
		if got := [2]uint64{x.client.Network.Count - before[0], x.server.Network.Count - before[1]}; got != [2]uint64{20, 20} {
			t.Errorf("%s began again: %v round trips of 20", which, got)
		}
		if x.client.Peer.Lost+x.server.Peer.Lost != 0 {
			t.Errorf("%s began again: %d and %d lost", which, x.client.Peer.Lost, x.server.Peer.Lost)
		}
	}
}

// A flow whose receiver sends nothing any more: a burst of loss counts, however fast it is,
// as soon as what follows has been there for as long.
func TestLossOneWay(t *testing.T) {
	e := endpoint(1)
	at, psn := 1*ms, uint16(0)
	send := func(n int, gap uint64) {
		for range n {
			at += gap
			psn++
			e.Receive(pdm.Option{PSNTP: psn, PSNLR: e.LastSent(), DeltaTLR: 1, DeltaTLS: 1}, uint32(psn), at)
		}
	}
	for range 5 {
		e.Send(at)
		send(20, 10*ms/1000)
	}
	psn += 500
	at += 5 * ms
	send(1000, 10*ms/1000)
	if c := e.Peer.SequenceCounts; c.Lost != 500 || c.Packets != 1100 || c.Restarts != 0 {
		t.Errorf("%+v", c)
	}
	// A restart takes 10 s, since nothing proves it.
	psn += 30000
	send(999, 10*ms)
	if c := e.Peer.SequenceCounts; c.Restarts != 0 {
		t.Errorf("%+v", c)
	}
	send(2, 10*ms)
	if c := e.Peer.SequenceCounts; c.Restarts != 1 || c.Lost != 500 || c.Packets != 2101 {
		t.Errorf("%+v", c)
	}
}
