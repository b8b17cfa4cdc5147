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
