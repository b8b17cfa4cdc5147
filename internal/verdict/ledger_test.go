package verdict

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLedger: over all its time, a ledger has what counters grew by, also after they began again and
// after old periods were joined; a part of the time has no more than that.
func TestLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLedger()
		at := time.Unix(1000, 0)
		start, n := at, rapid.IntRange(1, 3*maxPeriods).Draw(t, "periods")
		const ids = 3
		var now, want [ids]uint64
		known := [ids]bool{}
		every := rapid.Uint64Range(1, 50).Draw(t, "growth")
		for i := range n {
			var counters []Counter
			for id := range ids {
				if (i+id)%7 == 3 && i < 20 {
					continue // it is not there for a while
				}
				older := id == 0
				if i%97 == 5 {
					now[id] = 0 // it begins again
				}
				growth := (uint64(i) * uint64(id+1)) % every
				now[id] += growth
				if i > 0 && !older && !known[id] {
					want[id] += now[id]
				}
				counters = append(counters, Counter{Kind: GateDrops, ID: fmt.Sprint(id), N: now[id], Of: int64(2 * now[id]), Older: older})
			}
			present := map[string]Counter{}
			for _, c := range counters {
				present[c.ID] = c
			}
			for id := range ids {
				c, is := present[fmt.Sprint(id)]
				before, was := l.last[counterID{GateDrops, fmt.Sprint(id)}]
				if is && was && i > 0 {
					if c.N >= before.N {
						want[id] += c.N - before.N
					} else {
						want[id] += c.N
					}
				}
				known[id] = is
			}
			l.Add(at, counters)
			at = at.Add(time.Second)
		}
		grown, first, last := l.Between(start.Add(-time.Hour), at)
		var got [ids]uint64
		for _, c := range grown {
			var id int
			fmt.Sscan(c.ID, &id)
			got[id] = c.N
			if c.Of != int64(2*c.N) {
				t.Fatalf("%d of %d", c.N, c.Of)
			}
		}
		if got != want {
			t.Fatalf("grew by %v, want %v", got, want)
		}
		if n > 1 && (first.After(start) || !last.Equal(at.Add(-time.Second))) || len(l.periods) > maxPeriods {
			t.Fatalf("covers %v to %v, %d periods", first, last, len(l.periods))
		}
		some, _, _ := l.Between(start.Add(time.Duration(n/2)*time.Second), at)
		for _, c := range some {
			var id int
			fmt.Sscan(c.ID, &id)
			if c.N > want[id] {
				t.Fatalf("half of the time has %d of %d", c.N, want[id])
			}
		}
	})
}
