package pdm_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/wire/pdm"
)

func TestStateWrapsAndKeepsZero(t *testing.T) {
	a := pdm.State{PSN: 65535}
	if o := a.Send(1); o.PSNTP != 65535 {
		t.Errorf("first packet %v", o)
	}
	if got := a.LastSent(); got != 65535 {
		t.Errorf("last sent %d", got)
	}
	o := a.Send(2)
	if o.PSNTP != 0 {
		t.Errorf("after 65535 comes %d", o.PSNTP)
	}

	// Number 0 is a number: the answer to it carries a DTLR.
	b := pdm.State{PSN: 7}
	b.Receive(o, 1000)
	answer := b.Send(2000)
	if answer.PSNLR != 0 || answer.DeltaTLR == 0 || !answer.HasReceived() {
		t.Errorf("answer to packet 0: %v", answer)
	}
}

func TestStateWithTwoClocksOutOfStep(t *testing.T) {
	s := pdm.State{PSN: 1}
	s.Receive(pdm.Option{PSNTP: 9}, 100)
	s.Send(100)
	// Another CPU took its time before, and comes after.
	if o := s.Send(90); o.DeltaTLR != 0 || o.DeltaTLS != 0 {
		t.Errorf("a delta below zero: %v", o)
	}
}

// Whatever is sent and received in whatever order, the option is what a log of
// all events says it must be.
func TestStateAgainstLog(t *testing.T) {
	type event struct {
		sent bool
		psn  uint16
		at   uint64
	}
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint16().Draw(t, "psn")
		s := pdm.State{PSN: first}
		var log []event
		now, next := rapid.Uint64Range(0, 1<<50).Draw(t, "start"), first
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			now += rapid.Uint64Range(0, 1<<rapid.IntRange(0, 45).Draw(t, "magnitude")).Draw(t, "gap")
			if rapid.Bool().Draw(t, "receive") {
				psn := rapid.Uint16().Draw(t, "peer")
				s.Receive(pdm.Option{PSNTP: psn}, now)
				log = append(log, event{psn: psn, at: now})
				continue
			}
			want := pdm.Option{PSNTP: next}
			var lastReceived, lastSent *event
			for i := range log {
				if log[i].sent {
					lastSent = &log[i]
				} else {
					lastReceived = &log[i]
				}
			}
			if lastReceived != nil {
				want.PSNLR = lastReceived.psn
				want.DeltaTLR, want.ScaleDTLR = pdm.Scale(now - lastReceived.at)
			}
			switch {
			case lastSent == nil:
			case !log[len(log)-1].sent:
				want.DeltaTLS, want.ScaleDTLS = pdm.Scale(lastReceived.at - lastSent.at)
			default:
				want.DeltaTLS, want.ScaleDTLS = pdm.Scale(now - lastSent.at)
			}
			if got := s.Send(now); got != want {
				t.Fatalf("after %v: %v, want %v", log, got, want)
			}
			log = append(log, event{sent: true, at: now})
			next++
		}
	})
}

func BenchmarkStateSend(b *testing.B) {
	s := pdm.State{PSN: 1}
	now := uint64(0)
	for b.Loop() {
		now += 12345
		s.Receive(pdm.Option{PSNTP: s.PSN}, now)
		sink += uint64(s.Send(now + 500).DeltaTLR)
	}
}
