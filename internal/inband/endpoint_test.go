package inband_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/wire/pdm"
)

const ms = uint64(time.Millisecond)

func endpoint(psn uint16) *inband.Endpoint { return &inband.Endpoint{State: pdm.State{PSN: psn}} }

// near reports whether a time came through PDM's 16 bits.
func near(got, want uint64) bool { return got <= want && want-got <= want>>15+1 }

func TestEndpointMeasuresOnAnswer(t *testing.T) {
	client, server := endpoint(65535), endpoint(9)
	server.Receive(client.Send(1000*ms), 1, 7010*ms) // another clock
	s := client.Receive(server.Send(7060*ms), 1, 1070*ms)
	if !s.HasServer || !near(s.Server, 50*ms) {
		t.Errorf("server delay %v", time.Duration(s.Server))
	}
	if !s.HasNetwork || s.Network < 20*ms || s.Network > 20*ms+50*ms>>15 {
		t.Errorf("network round trip %v", time.Duration(s.Network))
	}

	// Further packets of the same answer tell nothing more.
	s = client.Receive(server.Send(7090*ms), 2, 1100*ms)
	if want := (inband.Sample{Arrival: inband.InOrder}); s != want {
		t.Errorf("second packet of the answer: %+v", s)
	}
	// The server measures the client's side in turn.
	s = server.Receive(client.Send(1200*ms), 3, 7210*ms)
	if !s.HasNetwork || s.Network < 20*ms || s.Network > 21*ms {
		t.Errorf("network round trip at the server %+v", s)
	}
	if client.Server.Count != 1 || client.Network.Count != 1 || server.Network.Count != 1 {
		t.Errorf("samples: %d, %d, %d", client.Server.Count, client.Network.Count, server.Network.Count)
	}
}

func TestEndpointKeepsOut(t *testing.T) {
	delta := func(ns uint64) (uint16, uint8) { return pdm.Scale(ns) }
	answer := func(psn, psnlr uint16, delay uint64) pdm.Option {
		o := pdm.Option{PSNTP: psn, PSNLR: psnlr}
		o.DeltaTLR, o.ScaleDTLR = delta(delay)
		return o
	}
	// The client sent 100, 101 and 102 at 0, 1 and 2 ms; each case comes at 10 ms.
	for _, c := range []struct {
		name      string
		o         pdm.Option
		want      inband.Sample
		discarded uint64
	}{
		{"answer to the latest", answer(1, 102, 3*ms), inband.Sample{Arrival: inband.First, HasServer: true, HasNetwork: true, Server: 3 * ms, Network: 5 * ms}, 0},
		{"answer to an earlier one", answer(1, 101, 3*ms), inband.Sample{Arrival: inband.First}, 1},
		{"longer than the time that passed", answer(1, 102, 9*ms), inband.Sample{Arrival: inband.First, Suspicion: inband.ImpossibleTime}, 0},
		{"longer by what clocks drift", answer(1, 102, 8*ms+8*ms>>11), inband.Sample{Arrival: inband.First, HasServer: true, HasNetwork: true, Server: 8*ms + 8*ms>>11}, 0},
		{"longest delta of all", pdm.Option{PSNTP: 1, PSNLR: 102, DeltaTLR: 0xFFFF, ScaleDTLR: 255}, inband.Sample{Arrival: inband.First, Suspicion: inband.ImpossibleTime}, 0},
		{"answer to what was not sent yet", answer(1, 103, 3*ms), inband.Sample{Arrival: inband.First, Suspicion: inband.ImpossiblePSN}, 0},
		{"peer that received nothing", pdm.Option{PSNTP: 1}, inband.Sample{Arrival: inband.First}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := endpoint(100)
			e.Send(0)
			e.Send(1 * ms)
			e.Send(2 * ms)
			got := e.Receive(c.o, 1, 10*ms)
			if !near(got.Server, c.want.Server) {
				t.Errorf("server %d, want %d", got.Server, c.want.Server)
			}
			if !near(c.want.Network, got.Network) {
				t.Errorf("network %d, want %d", got.Network, c.want.Network)
			}
			got.Server, got.Network = c.want.Server, c.want.Network
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if e.Discarded != c.discarded {
				t.Errorf("discarded %d, want %d", e.Discarded, c.discarded)
			}
			if want := c.want.Suspicion != inband.NotSuspicious; (e.Suspicious == 1) != want {
				t.Errorf("suspicious %d", e.Suspicious)
			}
			kept := uint64(0)
			if c.want.HasNetwork {
				kept = 1
			}
			if e.Network.Count != kept || e.Server.Count != kept {
				t.Errorf("%d and %d samples kept, want %d", e.Server.Count, e.Network.Count, kept)
			}
			// Whatever it was, the next packet answers it.
			if next := e.Send(20 * ms); next.PSNLR != c.o.PSNTP || !next.HasReceived() {
				t.Errorf("next packet %v", next)
			}
		})
	}
}

func TestEndpointBehindGap(t *testing.T) {
	client, server := endpoint(1), endpoint(1)
	server.Receive(client.Send(0), 1, 10*ms)
	client.Receive(server.Send(20*ms), 1, 30*ms)

	// The first packet of the second answer is lost: the second has the right
	// round trip, and a delay that is not the server's.
	server.Receive(client.Send(100*ms), 2, 110*ms)
	server.Send(120 * ms)
	s := client.Receive(server.Send(170*ms), 3, 180*ms)
	if s.Arrival != inband.Gap || s.HasServer || !s.HasNetwork || s.Network < 20*ms || s.Network > 21*ms {
		t.Errorf("behind a gap: %+v", s)
	}
	if client.Peer.Lost != 1 {
		t.Errorf("lost %d", client.Peer.Lost)
	}
}

// The peer sent before, but not to this agent, which has just begun.
func TestEndpointBeginsLate(t *testing.T) {
	e := endpoint(1)
	e.Send(0)
	o := pdm.Option{PSNTP: 9, PSNLR: 1, DeltaTLS: 1, ScaleDTLS: 40}
	o.DeltaTLR, o.ScaleDTLR = pdm.Scale(3 * ms)
	if s := e.Receive(o, 0, 10*ms); s.HasServer || !s.HasNetwork {
		t.Errorf("%+v", s)
	}
}

func TestEndpointUnasked(t *testing.T) {
	e := endpoint(5)
	if s := e.Receive(pdm.Option{PSNTP: 3, PSNLR: 4, DeltaTLR: 1}, 0, 10); s != (inband.Sample{Arrival: inband.First}) {
		t.Errorf("a packet before any was sent: %+v", s)
	}
	if s := e.Receive(pdm.Option{PSNTP: 20003, PSNLR: 4, DeltaTLR: 1, DeltaTLS: 1}, 0, 10); s.Suspicion != inband.ImpossiblePSN {
		t.Errorf("a number out of all order: %+v", s)
	}
}

// No answer, however forged, makes an average of what is impossible.
func TestEndpointNeverExceedsElapsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := endpoint(rapid.Uint16().Draw(t, "psn"))
		now := uint64(0)
		longest := uint64(0)
		for range rapid.IntRange(1, 20).Draw(t, "rounds") {
			e.Send(now)
			wait := rapid.Uint64Range(0, 1000*ms).Draw(t, "wait")
			now += wait
			longest = max(longest, wait)
			e.Receive(pdm.Option{
				PSNTP:    rapid.Uint16().Draw(t, "psntp"),
				PSNLR:    e.LastSent() + uint16(rapid.IntRange(-2, 2).Draw(t, "psnlr")),
				DeltaTLR: rapid.Uint16().Draw(t, "dtlr"), ScaleDTLR: rapid.Uint8().Draw(t, "scale dtlr"),
				DeltaTLS: rapid.Uint16().Draw(t, "dtls"), ScaleDTLS: rapid.Uint8().Draw(t, "scale dtls"),
			}, 0, now)
		}
		if e.Network.Max > longest || e.Server.Max > longest+longest>>10 {
			t.Fatalf("network %d and server %d, and %d passed", e.Network.Max, e.Server.Max, longest)
		}
	})
}

func BenchmarkEndpoint(b *testing.B) {
	e := endpoint(1)
	now, psn := uint64(0), uint16(0)
	d, s := pdm.Scale(50 * ms)
	for b.Loop() {
		now += 70 * ms
		psn++
		o := e.Send(now)
		e.Receive(pdm.Option{PSNTP: psn, PSNLR: o.PSNTP, DeltaTLR: d, ScaleDTLR: s, DeltaTLS: 1}, 0, now+70*ms)
	}
}

// A TCP peer acknowledges a request at once and answers later: the first tells
// of the path, the second of the server, and neither twice.
func TestAcknowledgmentIsNoAnswer(t *testing.T) {
	const ms = 1_000_000
	client, server := &inband.Endpoint{State: pdm.State{PSN: 1}}, &inband.Endpoint{State: pdm.State{PSN: 100}}
	server.Receive(client.Send(1000*ms), 1, 1010*ms)

	s := client.Acknowledge(server.Send(1010*ms), 1, 1020*ms)
	if s.HasServer || !s.HasNetwork || s.Network != 20*ms {
		t.Errorf("acknowledgment: %+v", s)
	}
	s = client.Receive(server.Send(1060*ms), 1, 1070*ms)
	if !s.HasServer || s.HasNetwork || s.Server/ms != 50 && s.Server/ms != 49 {
		t.Errorf("answer: %+v", s)
	}
	if s = client.Receive(server.Send(1061*ms), 2, 1071*ms); s.HasServer || s.HasNetwork {
		t.Errorf("further packet of the answer: %+v", s)
	}
}

// What a TCP peer sends after an acknowledgment is no answer to that.
func TestAcknowledgmentAsksNothing(t *testing.T) {
	client, server := endpoint(1), endpoint(100)
	server.Receive(client.Send(1000*ms), 1, 1010*ms)
	client.Receive(server.Send(1060*ms), 1, 1070*ms)

	server.Acknowledge(client.SendAcknowledgment(1071*ms), 2, 1081*ms)
	s := client.Receive(server.Send(1084*ms), 2, 1094*ms) // the rest of the answer
	if s.HasServer || !s.HasNetwork || !near(20*ms, s.Network) {
		t.Errorf("what came after the acknowledgment: %+v", s)
	}
	if client.Server.Count != 1 || client.Network.Count != 2 {
		t.Errorf("%d server delays, %d round trips", client.Server.Count, client.Network.Count)
	}
}
