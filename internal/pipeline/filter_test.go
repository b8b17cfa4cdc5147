package pipeline

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
)

// TestFilter: an exporter with a filter gets what matches and counts the rest as
// filtered, not as lost; its queue holds only what matches, and an exporter next
// to it gets everything.
func TestFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chosen, err := filter.Parse("packets > 1000")
		if err != nil {
			t.Fatal(err)
		}
		all, few := &script{}, &script{}
		p := New(Default(), []Output{
			{Exporter: all, Queue: 10_000}, {Exporter: few, Filter: chosen, Queue: 10},
		}, slog.New(slog.DiscardHandler), time.Now)
		stop := start(t, p)
		for first := 1; first <= 1010; first += 101 { // without Begin: the limit of the queue holds
			p.Publish(numbered(p, first, 101))
			synctest.Wait()
		}
		stop()
		if want := numbers(1001, 1010); !slices.Equal(few.got, want) {
			t.Errorf("filtered exporter got %v, want %v", few.got, want)
		}
		if want := numbers(1, 1010); !slices.Equal(all.got, want) {
			t.Errorf("the other exporter got %d records, want %d", len(all.got), len(want))
		}
		for i, want := range []struct{ exported, filtered uint64 }{{1010, 0}, {10, 1000}} {
			if s := p.Status()[i]; s.Exported != want.exported || s.Filtered != want.filtered || len(s.Lost) > 0 || s.Queued != 0 {
				t.Errorf("status %d: %+v, want %+v and no loss", i, s, want)
			}
		}
	})
}

func numbers(first, last uint64) []uint64 {
	var out []uint64
	for n := first; n <= last; n++ {
		out = append(out, n)
	}
	return out
}
