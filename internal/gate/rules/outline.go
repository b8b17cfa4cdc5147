package rules

import (
	"encoding/binary"
	"math"
	"net/netip"
)

// outline bounds what a rule matches, in one cache line: nearly all pairs of rules of a large set are distinguished by it.
type outline struct {
	src, dst bounds[uint64]
	numbers  [len(kinds)]bounds[uint16]
	acts     bool // it decides, not only in a dry run
	drops    bool
	passes   bool
}

// bounds are the least and the largest value; without a condition, all values are between them.
type bounds[T uint16 | uint64] struct{ low, high T }

// has reports whether all values of another are between the bounds.
func (b bounds[T]) has(other bounds[T]) bool { return b.low <= other.low && other.high <= b.high }

func (b bounds[T]) meets(other bounds[T]) bool { return b.low <= other.high && other.low <= b.high }

// ofDport is the kind of number that differs most often.
const ofDport = 3

func newOutline(r *resolved) outline {
	o := outline{
		src: r.src.bounds(), dst: r.dst.bounds(), acts: r.rule.decides() && !r.rule.DryRun,
		drops: r.rule.Action == ActionDrop, passes: r.rule.Action == ActionPass,
	}
	for k, list := range r.numbers {
		o.numbers[k] = bounds[uint16]{0, math.MaxUint16}
		if len(list) > 0 {
			o.numbers[k] = bounds[uint16]{list[0].First, list[len(list)-1].Last}
		}
	}
	return o
}

// bounds are those of the addresses that match.
func (s *sources) bounds() bounds[uint64] {
	if s.any || s.not || len(s.list) == 0 {
		return bounds[uint64]{0, math.MaxUint64}
	}
	last := s.list[len(s.list)-1]
	return bounds[uint64]{rank(s.list[0].Addr(), 0), rank(last.Addr(), last.Addr().BitLen()-last.Bits())}
}

// rank has addresses in their order: IPv4, then the upper half of IPv6, with the last bits set.
func rank(a netip.Addr, set int) uint64 {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:])) | (1<<set - 1)
	}
	b := a.As16()
	high := binary.BigEndian.Uint64(b[:8])
	if set > 64 {
		high |= 1<<(set-64) - 1
	}
	return 1<<63 | high>>1
}

// mayConflict is false where a rule can have no effect on a later one that was hardly meant.
func (o *outline) mayConflict(later *outline) bool {
	if !o.acts || !o.numbers[ofDport].has(later.numbers[ofDport]) || !o.dst.has(later.dst) || !o.src.has(later.src) && !(o.drops && later.passes && o.src.meets(later.src)) {
		return false
	}
	for k := range o.numbers {
		if !o.numbers[k].has(later.numbers[k]) {
			return false
		}
	}
	return true
}
