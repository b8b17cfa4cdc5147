package rules

import (
	"net/netip"
	"time"
)

// Buckets are the token buckets of a rule set's limits, exact and without a bound on
// their number: the reference for the engine, and the state of offline evaluation.
type Buckets struct {
	buckets map[bucketKey]*bucket
}

type bucketKey struct {
	rule uint32
	src  netip.Prefix // of PerRule: none
}

type bucket struct {
	nanos uint64 // tokens × 1e9 / rate: time that the bucket would need to gather them
	last  time.Time
}

// NewBuckets returns buckets that are full.
func NewBuckets() *Buckets { return &Buckets{map[bucketKey]*bucket{}} }

// Exceeds takes what a packet needs out of its bucket, and reports whether there was
// too little; then nothing is taken.
func (b *Buckets) Exceeds(r *Rule, p *Packet, now time.Time) bool {
	l := r.Limit
	key := bucketKey{r.ID, l.source(p.Src)}
	full := l.nanos(l.Burst)
	one := b.buckets[key]
	if one == nil {
		one = &bucket{full, now}
		b.buckets[key] = one
	}
	if passed := now.Sub(one.last); passed > 0 {
		one.nanos = min(one.nanos+uint64(passed), full)
		one.last = now
	}
	need := l.nanos(1)
	if l.Bytes {
		need = l.nanos(uint64(p.Length))
	}
	if need > one.nanos {
		return true
	}
	one.nanos -= need
	return false
}

// nanos is how long a bucket gathers tokens.
func (l *Limit) nanos(tokens uint64) uint64 {
	return uint64(float64(tokens) * float64(time.Second) / float64(l.Rate))
}

// source is what of a source address has its own bucket.
func (l *Limit) source(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	switch {
	case l.Per == PerRule || !a.IsValid():
		return netip.Prefix{}
	case l.Per == PerSourcePrefix && a.Is4():
		bits = int(l.Bits4)
	case l.Per == PerSourcePrefix:
		bits = int(l.Bits6)
	}
	return netip.PrefixFrom(a, bits).Masked()
}
