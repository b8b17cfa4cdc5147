package ioam

import (
	"math/rand/v2"
	"testing"
	"time"
)

// watched is a link of which each minute has packets, with a least time that the clocks' drift, in
// ppm, changes, on top of queues.
func watched(minutes int, offset, queue time.Duration, ppm float64, grows bool) *Path {
	random := rand.New(rand.NewPCG(1, 2))
	p := &Path{Hops: make([]Hop, 2)}
	link, now := &p.Hops[0].Link, time.Unix(1e9, 0)
	for i := range minutes {
		for k := range 20 {
			base := offset + time.Duration(ppm*1e-6*float64(i)*float64(time.Minute))
			if k > 0 || grows {
				base += time.Duration(random.Int64N(int64(queue) + 1))
			}
			ns := int64(base)
			link.add(&Times{Count: 1, Sum: ns, Min: ns, Max: ns})
		}
		now = now.Add(time.Minute)
		link.turn(now)
		p.judge()
	}
	return p
}

// Clocks that do not agree are noticed by what no link can take, and by a least time that grows or
// shrinks evenly. Links that are merely slow, or loaded, are not.
func TestClocksDisagree(t *testing.T) {
	for _, tt := range []struct {
		what          string
		minutes       int
		offset, queue time.Duration
		ppm           float64
		grows         bool
		relative      bool
	}{
		{"a fast link", 8, 20 * time.Microsecond, time.Millisecond, 0, false, false},
		{"a satellite", 8, 280 * time.Millisecond, 100 * time.Millisecond, 0, false, false},
		{"full queues", 8, time.Millisecond, 15 * time.Second, 0, false, false},
		{"queues that empty never", 30, time.Millisecond, 2 * time.Second, 0, true, false},
		{"behind", 1, -time.Microsecond, 0, 0, false, true},
		{"ahead", 1, 700 * time.Millisecond, 0, 0, false, true},
		{"drift", 8, 100 * time.Millisecond, time.Millisecond, 20, false, true},
		{"drift backwards", 8, 100 * time.Millisecond, time.Millisecond, -20, false, true},
		{"a queue that grows", 8, 100 * time.Millisecond, time.Millisecond, 4000, false, false},
		{"drift, not long enough", 4, 100 * time.Millisecond, time.Millisecond, 20, false, false},
		{"clocks that are steered", 8, 100 * time.Millisecond, time.Millisecond, 0.5, false, false},
	} {
		p := watched(tt.minutes, tt.offset, tt.queue, tt.ppm, tt.grows)
		if p.Hops[0].Relative != tt.relative || p.Relative() != tt.relative {
			t.Errorf("%s: relative %t, drift %g", tt.what, p.Hops[0].Relative, p.Hops[0].Drift)
		}
		if drift := p.Hops[0].Drift * 1e6; tt.relative && tt.ppm != 0 && (drift/tt.ppm < 0.9 || drift/tt.ppm > 1.1) {
			t.Errorf("%s: drift of %g ppm, want %g", tt.what, drift, tt.ppm)
		}
	}
}

// What the kernel says of the own clock is one of its states.
func TestClockState(t *testing.T) {
	c, err := ReadClock()
	if err != nil || c.Synchronized && c.MaxError <= 0 {
		t.Errorf("%+v, %v", c, err)
	}
}
