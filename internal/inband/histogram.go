package inband

import (
	"math"
	"math/bits"
	"time"
)

// The buckets of a histogram of delays: eight of equal width to each power of
// two, from 2^10 ns on. Bucket 0 takes all that is shorter, and the last all
// that is longer, from 1.75 · 2^35 ns (60 s) on.
//
// Eight, because a value read from a bucket is then at most 1/17 (5.9 %) off;
// with four it would be 1/9. 208 counters of 32 bits are 13 cache lines, of
// which a flow with a steady delay touches one.
const (
	SubBits = 3  // 2^SubBits buckets to a power of two
	MinBits = 10 // bucket 0 is below 2^MinBits ns
	Buckets = 208
)

// Bucket is the index of the bucket for a delay in nanoseconds.
func Bucket(ns uint64) int {
	if ns < 1<<MinBits {
		return 0
	}
	top := bits.Len64(ns) - 1
	sub := int(ns>>(top-SubBits)) & (1<<SubBits - 1)
	return min((top-MinBits)<<SubBits+sub+1, Buckets-1)
}

// BucketBounds returns the shortest delay of bucket i in nanoseconds, and the
// first beyond it.
func BucketBounds(i int) (from, to uint64) {
	switch {
	case i <= 0:
		return 0, 1 << MinBits
	case i >= Buckets-1:
		from, _ = bounds(Buckets - 1)
		return from, math.MaxUint64
	}
	return bounds(i)
}

func bounds(i int) (from, to uint64) {
	shift := (i-1)>>SubBits + MinBits - SubBits
	step := uint64((i-1)&(1<<SubBits-1) | 1<<SubBits)
	return step << shift, (step + 1) << shift
}

// Histogram holds delays in nanoseconds. The zero value is empty.
type Histogram struct {
	Count   uint64
	Sum     uint64
	Min     uint64 // 0 while Count is 0
	Max     uint64
	Buckets [Buckets]uint64
}

// Add counts one delay.
func (h *Histogram) Add(ns uint64) {
	if h.Count == 0 || ns < h.Min {
		h.Min = ns
	}
	h.Max = max(h.Max, ns)
	h.Count++
	h.Sum = addSaturated(h.Sum, ns)
	h.Buckets[Bucket(ns)]++
}

// Merge adds what o counted.
func (h *Histogram) Merge(o *Histogram) {
	if o.Count == 0 {
		return
	}
	h.addTotals(o.Count, o.Sum, o.Min, o.Max)
	for i, n := range o.Buckets {
		h.Buckets[i] += n
	}
}

// AddCounters adds what the kernel counted of one flow: totals, and up to
// [Buckets] counters of 32 bits.
func (h *Histogram) AddCounters(count, sum, shortest, longest uint64, buckets []uint32) {
	if count == 0 {
		return
	}
	h.addTotals(count, sum, shortest, longest)
	for i, n := range buckets {
		h.Buckets[i] += uint64(n)
	}
}

func (h *Histogram) addTotals(count, sum, shortest, longest uint64) {
	if h.Count == 0 || shortest < h.Min {
		h.Min = shortest
	}
	h.Max = max(h.Max, longest)
	h.Count += count
	h.Sum = addSaturated(h.Sum, sum)
}

func addSaturated(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// Mean is exact, unlike percentiles. It is 0 when nothing was counted.
func (h *Histogram) Mean() time.Duration {
	if h.Count == 0 {
		return 0
	}
	return duration(h.Sum / h.Count)
}

// Quantile returns the delay that the fraction q of all delays does not exceed:
// 0.5 is the median. Between 1 µs and 60 s it is within 1/17 of the exact one,
// elsewhere within the bounds of its bucket, and never outside Min and Max. It
// is 0 when nothing was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	// The counters of a live flow may be ahead of its Count, or behind.
	var total uint64
	for _, n := range h.Buckets {
		total += n
	}
	switch {
	case total == 0:
		return 0
	case !(q > 0):
		return duration(h.Min)
	case q >= 1:
		return duration(h.Max)
	}
	rank := min(uint64(math.Ceil(q*float64(total))), total)
	for i, n := range h.Buckets {
		if rank <= n {
			return duration(h.within(i))
		}
		rank -= n
	}
	return duration(h.Max)
}

// within is the middle of the part of bucket i that Min and Max leave.
func (h *Histogram) within(i int) uint64 {
	from, to := BucketBounds(i)
	if h.Min <= from && h.Max >= to {
		return middle(i)
	}
	from, to = max(from, h.Min), min(to, h.Max)
	if to <= from { // Count is behind the buckets
		return min(max(middle(i), h.Min), h.Max)
	}
	return from + uint64(float64(from)*float64(to-from)/float64(from+to)) // harmonic mean
}

// middle is the value of bucket i with the least relative error to both ends:
// their harmonic mean.
func middle(i int) uint64 {
	switch i {
	case 0:
		return 1 << MinBits / 2
	case Buckets - 1:
		return math.MaxUint64 // cut to Max
	}
	from, _ := bounds(i)
	// The ends are step and step + 1 of a power of two.
	step := uint64((i-1)&(1<<SubBits-1) | 1<<SubBits)
	return from + from/(2*step+1)
}

func duration(ns uint64) time.Duration { return time.Duration(min(ns, math.MaxInt64)) }
