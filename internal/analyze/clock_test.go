package analyze

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/export/analyzer"
	"github.com/waymark-net/waymark/internal/verdict"
)

// TestClockBounds: the true difference lies in the bounds, whatever way requests take; where nothing is known, there are none.
func TestClockBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	for range 2000 {
		var c clock
		off := time.Duration(r.Int64N(int64(4*time.Second))) - 2*time.Second
		there, back := time.Duration(r.Int64N(int64(80*time.Millisecond))), time.Duration(r.Int64N(int64(80*time.Millisecond)))
		n, before, shortest := r.IntN(30), time.Duration(0), time.Hour
		for i := range n {
			queued := time.Duration(r.ExpFloat64() * float64(20*time.Millisecond))
			c.note(clockSeen{ahead: off - there - queued, trip: before})
			before = there + queued + back
			if i < n-1 {
				shortest = min(shortest, before)
			}
		}
		b, known := c.bounds()
		if known != (n >= leastClocks) {
			t.Fatalf("%d requests: %v", n, known)
		}
		if known && n <= mostClocks && (off < b.Least || off > b.Most || b.Most-b.Least > shortest+2*driftSlack) {
			t.Fatalf("%v ahead, bounds %v to %v, way %v and %v", off, b.Least, b.Most, there, back)
		}
	}
	var set clock
	for i := range 6 {
		set.note(clockSeen{ahead: time.Duration(i) * 300 * time.Millisecond, trip: time.Millisecond})
	}
	if b, known := set.bounds(); known {
		t.Errorf("a clock that was set has bounds %v", b)
	}
}

// TestClockOfHosts: after some requests of a real exporter, the clock of this machine is known within some milliseconds.
func TestClockOfHosts(t *testing.T) {
	s := newScene(t)
	a, _ := s.start(t)
	p := s.pusher(t, s.certificate(t, "athos"), filepath.Join(t.TempDir(), "queue"), func(cfg *analyzer.Config) { cfg.Sampling = 10 })
	for range leastClocks + 1 {
		p.interval(1)
		p.delivered(t)
	}
	h := a.all()[0]
	h.mu.Lock()
	b, known := h.clock.bounds()
	sampling := h.state.Sampling
	h.mu.Unlock()
	if !known || b.Least > 0 || b.Most < 0 || b.Most-b.Least > time.Second {
		t.Errorf("known %v: %+v", known, b)
	}
	if sampling != 10 {
		t.Errorf("one packet in %d is counted", sampling)
	}
	x, err := a.compare(t.Context(), "", p.from.Add(-time.Hour), time.Now())
	if err != nil || x.Unequal["athos"] == "" || x.Clocks["athos"] == (verdict.Clock{}) {
		t.Errorf("%v %+v", err, x)
	}
}
