package ioam

import (
	"math"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
)

// Times are times of one hop, one link or one path, in nanoseconds. Those of links are
// differences between clocks, which may be below 0.
type Times struct {
	Count         uint64
	Sum, Min, Max int64
	// Base is subtracted from each time before its bucket is chosen.
	Base    int64
	Buckets []flow.DelayBucket // without empty ones
}

// timesOf is a cell of the programs.
func timesOf(c *abiIoamCell, base int64) Times {
	t := Times{Count: c.Count, Sum: c.Sum, Min: c.Min, Max: c.Max, Base: base}
	for i, n := range c.Bucket {
		if n > 0 {
			t.Buckets = append(t.Buckets, flow.DelayBucket{Index: uint8(i), Count: uint64(n)})
		}
	}
	return t
}

// add adds what another CPU or interval measured. Buckets with another base are of no use
// together: those of the newer one stay.
func (t *Times) add(o *Times) {
	if o.Count == 0 {
		return
	}
	if t.Count == 0 {
		t.Min, t.Max = o.Min, o.Max
	}
	t.Min, t.Max = min(t.Min, o.Min), max(t.Max, o.Max)
	t.Count += o.Count
	t.Sum += o.Sum
	if t.Base != o.Base || t.Buckets == nil {
		t.Base, t.Buckets = o.Base, slices.Clone(o.Buckets)
		return
	}
	d := flow.Delays{Buckets: t.Buckets}
	d.Merge(&flow.Delays{Count: o.Count, Buckets: o.Buckets})
	t.Buckets = d.Buckets
}

// Mean is exact. It is 0 when nothing was measured.
func (t *Times) Mean() time.Duration {
	if t.Count == 0 {
		return 0
	}
	return time.Duration(t.Sum / int64(t.Count))
}

// Quantile returns the time that the fraction q of all does not exceed. It is within 6 %
// of the exact one, less the base.
func (t *Times) Quantile(q float64) time.Duration {
	h := inband.Histogram{Max: math.MaxInt64}
	if t.Count == 0 {
		return 0
	}
	for _, b := range t.Buckets {
		h.Count += b.Count
		h.Buckets[b.Index] += b.Count
	}
	// Times at or below the base are in the first bucket.
	h.Min, h.Max = uint64(max(t.Min-t.Base, 0)), uint64(max(t.Max-t.Base, 0))
	if t.Min < t.Base && len(t.Buckets) > 0 && t.Buckets[0].Index == 0 && uint64(math.Ceil(q*float64(h.Count))) <= t.Buckets[0].Count {
		return time.Duration(t.Min)
	}
	return time.Duration(t.Base) + h.Quantile(q)
}

// Delays are the times as those of a record; those below 0 are not delays.
func (t *Times) Delays() flow.Delays {
	if t.Base != 0 || t.Min < 0 {
		return flow.Delays{}
	}
	return flow.Delays{Count: t.Count, Sum: uint64(t.Sum), Min: uint64(t.Min), Max: uint64(t.Max), Buckets: t.Buckets}
}
