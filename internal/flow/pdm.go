package flow

import (
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/inband"
)

// PDM is what the marks of RFC 8250 reported of a flow in an interval. Times are
// measured where answers arrive, so they stand with the half of a conversation
// that is received; what was marked stands with the half that is sent.
type PDM struct {
	Sent     uint64 // packets marked here; a GSO burst counts as one
	Received uint64 // marked packets read and believed here; a GSO burst counts as one

	// From the peer's packet sequence numbers.
	Lost       int64 // what comes after its loss was reported offsets the next loss
	Reordered  uint64
	Duplicates uint64

	Suspicious uint64 // impossible times, or numbers that are not believed: kept out of the delays
	Discarded  uint64 // in order, but no answer to the packet sent last

	Server  Delays // at the peer, from a request to its answer
	Network Delays // round trips without the time at the peer
}

// Add adds what another interval, or another processor, reported of the same flow.
func (p *PDM) Add(o *PDM) {
	for _, of := range PDMCounters {
		*of(p) += *of(o)
	}
	p.Lost += o.Lost
	p.Server.Merge(&o.Server)
	p.Network.Merge(&o.Network)
}

// Clone is a copy that shares no memory with p.
func (p *PDM) Clone() *PDM {
	own := *p
	own.Server.Buckets = slices.Clone(p.Server.Buckets)
	own.Network.Buckets = slices.Clone(p.Network.Buckets)
	return &own
}

// Delays is an inband.Histogram of one flow, which fills few of its buckets.
// Times are nanoseconds; Min is 0 while Count is 0.
type Delays struct {
	Count, Sum, Min, Max uint64
	Buckets              []DelayBucket // by index, without empty ones
}

// DelayBucket is a bucket that is not empty; see inband.BucketBounds.
type DelayBucket struct {
	Index uint8
	Count uint64
}

// DelaysOf keeps of a histogram what is not empty.
func DelaysOf(h *inband.Histogram) Delays {
	d := Delays{Count: h.Count, Sum: h.Sum, Min: h.Min, Max: h.Max}
	for i, n := range h.Buckets {
		if n > 0 {
			d.Buckets = append(d.Buckets, DelayBucket{Index: uint8(i), Count: n})
		}
	}
	return d
}

// Histogram is the inverse of DelaysOf.
func (d *Delays) Histogram() inband.Histogram {
	h := inband.Histogram{Count: d.Count, Sum: d.Sum, Min: d.Min, Max: d.Max}
	for _, b := range d.Buckets {
		h.Buckets[min(int(b.Index), inband.Buckets-1)] += b.Count
	}
	return h
}

// Merge adds what o counted, and neither changes nor keeps o.
func (d *Delays) Merge(o *Delays) {
	if o.Count == 0 {
		return
	}
	if d.Count == 0 || o.Min < d.Min {
		d.Min = o.Min
	}
	d.Max = max(d.Max, o.Max)
	d.Count += o.Count
	d.Sum += o.Sum
	i := 0
	for _, b := range o.Buckets {
		for i < len(d.Buckets) && d.Buckets[i].Index < b.Index {
			i++
		}
		if i < len(d.Buckets) && d.Buckets[i].Index == b.Index {
			d.Buckets[i].Count += b.Count
		} else {
			d.Buckets = slices.Insert(d.Buckets, i, b)
		}
	}
}

// Mean is exact, unlike quantiles. It is 0 when nothing was counted.
func (d *Delays) Mean() time.Duration {
	if d.Count == 0 {
		return 0
	}
	return time.Duration(d.Sum / d.Count)
}

// Quantile returns the delay that the fraction q of all delays does not exceed,
// as inband.Histogram.Quantile does.
func (d *Delays) Quantile(q float64) time.Duration {
	h := d.Histogram()
	return h.Quantile(q)
}
