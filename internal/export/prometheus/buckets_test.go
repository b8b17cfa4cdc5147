package prometheus

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
)

// At every bound, as many delays are counted as do not exceed it.
func TestClassicBucketsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []time.Duration
		for _, ns := range rapid.SliceOf(rapid.Int64Range(0, 1<<36)).Draw(t, "delays") {
			all = append(all, time.Duration(ns))
		}
		var h inband.Histogram
		for _, one := range all {
			h.Add(uint64(one))
		}
		d := flow.DelaysOf(&h)
		counts := classic(&d)
		if len(counts) != 20 {
			t.Fatalf("%d buckets", len(counts))
		}
		for bound, got := range counts {
			var want uint64
			for _, one := range all {
				if one.Seconds() < bound {
					want++
				}
			}
			if got != want {
				t.Fatalf("%d delays below %v s, want %d", got, bound, want)
			}
		}
	})
}
