package analyze

import (
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/store"
)

// TestCounting: a host is compared since the last break, and since the first interval of a run, in which counting began.
func TestCounting(t *testing.T) {
	h := &host{problem: map[string]string{}}
	at := func(seconds int) time.Time { return time.Unix(1_700_000_000+int64(seconds), 0) }
	for _, one := range []struct {
		boot     uint64
		from, to int
	}{{1, 0, 10}, {1, 10, 20}, {1, 30, 40}, {1, 40, 50}, {2, 51, 60}, {2, 60, 70}} {
		h.note(one.boot, store.Head{From: at(one.from), To: at(one.to)}, 1)
	}
	for _, c := range []struct{ since, until, want int }{{-100, 100, 60}, {65, 100, 65}, {-100, 50, 30}, {35, 50, 35}, {-100, 15, 10}, {-100, -50, -100}} {
		if got := h.counting(at(c.since), at(c.until)); !got.Equal(at(c.want)) {
			t.Errorf("%+v: since %v", c, got.Sub(at(0)))
		}
	}
	if got := h.counting(at(-100), time.Time{}); !got.Equal(at(60)) {
		t.Errorf("until now: since %v", got.Sub(at(0)))
	}
	if g := h.gapIn(at(0), at(25)); g == nil || !g.From.Equal(at(20)) {
		t.Errorf("gap %v", g)
	}
	if g := h.gapIn(at(31), at(50)); g != nil {
		t.Errorf("gap %v", g)
	}
}

// TestGapsAfterStart: an analyzer that starts again knows when a host did not count before, also while the analyzer was away.
func TestGapsAfterStart(t *testing.T) {
	s := newScene(t)
	f := s.certificate(t, "athos")
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	push := func(sequence uint64, after time.Duration) {
		t.Helper()
		if status, text, _ := s.push(t, s.client(t, f.Cert, f.Key), bodyOf(sequence, 1, begin.Add(after))); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
	}
	_, stop := s.start(t)
	push(1, 0) // bodyOf has intervals of 10 s
	push(2, 10*time.Second)
	push(3, time.Minute)
	stop()
	a, _ := s.start(t)
	push(4, 2*time.Minute)
	h := a.all()[0]
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range []struct{ from, to, gap time.Duration }{{0, 20 * time.Second, -1}, {0, time.Minute, 20 * time.Second}, {time.Minute, 2 * time.Minute, 70 * time.Second}} {
		g := h.gapIn(begin.Add(c.from), begin.Add(c.to))
		if (g == nil) != (c.gap < 0) || g != nil && !g.From.Equal(begin.Add(c.gap)) {
			t.Errorf("from %v to %v: %+v", c.from, c.to, g)
		}
	}
}
