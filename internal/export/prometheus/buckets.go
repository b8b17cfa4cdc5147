package prometheus

import (
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
)

// Bounds of the classic buckets: powers of two of a nanosecond, where buckets of
// inband end, too. So counts are exact. The first is 33 µs, the last 17 s.
const (
	firstBoundBits = 15
	lastBoundBits  = 34
)

// classic counts the delays up to each bound, in seconds.
func classic(d *flow.Delays) map[float64]uint64 {
	counts := make(map[float64]uint64, lastBoundBits-firstBoundBits+1)
	var sum uint64
	next := 0
	for bits := firstBoundBits; bits <= lastBoundBits; bits++ {
		for next < len(d.Buckets) {
			if _, to := inband.BucketBounds(int(d.Buckets[next].Index)); to > 1<<bits {
				break
			}
			sum += d.Buckets[next].Count
			next++
		}
		counts[time.Duration(1<<bits).Seconds()] = sum
	}
	return counts
}
