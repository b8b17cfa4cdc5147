package datapath

import "sync/atomic"

// part is what one CPU fills in one epoch: a number of sets, in chunks of its own.
//
// There are as many sets as the flows of recent epochs need: with fewer, more flows
// would not be at the first place looked at; with more, they would be spread over
// more pages than a CPU knows the addresses of, and a drain would read more. When
// flows are evicted all the same, the part grows at once: flows move to other sets,
// and what stands in a set that is looked at no more is drained like the rest.
type part struct {
	batch  *packetBatch // shared with the programs: the sets in use, and flows evicted
	chunks []chunk
	first  uint32 // number of its first chunk

	sets    uint32 // that may hold flows: what a failed drain left counts, too
	flows   uint64 // of the last epoch that was drained, as far as known
	evicted uint32 // before the part grew last
	quiet   int    // drains in a row after which half of the chunks would do
}

const (
	// slotsPerFlow is how many slots there are for each flow: of two, nearly four
	// flows of five are at the first place looked at, and half the memory of four is used.
	slotsPerFlow = 2
	// growth is how many times as large a part that evicts flows gets. How many more
	// flows there are is not known: one that comes again and again is evicted many times.
	growth = 4
	// evictedShare of the slots of a part may be evicted before it grows.
	evictedShare = 16
	// quietDrains is how many drains in a row must need half of the chunks at most
	// until the others are given back; each part is drained every second time.
	quietDrains = 3
	// shrinkBy is how many chunks a part gives back at a drain, at most.
	shrinkBy = 64
)

// setsFor is how many sets so many flows need: whole chunks, at least one.
func (s shape) setsFor(flows uint64) uint32 {
	sets := (flows*slotsPerFlow + uint64(ways) - 1) / uint64(ways)
	whole := (max(sets, 1) + uint64(s.chunkSets()) - 1) >> s.shift << s.shift
	return uint32(min(whole, uint64(s.sets)))
}

// use tells the programs how many sets to use.
func (p *part) use(sets uint32) {
	p.sets = max(p.sets, sets)
	p.evicted = atomic.LoadUint32(&p.batch.Evicted)
	atomic.StoreUint32(&p.batch.Sets, sets)
}

// wants is how many sets a part needs that programs fill: more, where flows are
// evicted. The next epoch has what flows need that were counted.
func (p *part) wants(s shape) uint32 {
	evicted := atomic.LoadUint32(&p.batch.Evicted) - p.evicted
	now := uint64(atomic.LoadUint32(&p.batch.Sets))
	if uint64(evicted) < now*uint64(ways)/evictedShare {
		return uint32(now)
	}
	return uint32(min(growth*now, uint64(s.sets)))
}

// drained notes how many flows the part had, now that it is empty.
func (p *part) drained(flows uint64) {
	most := growth * uint64(p.sets) * uint64(ways) / slotsPerFlow
	evicted := p.batch.Evicted - p.evicted // what was evicted before found room
	p.flows = min(flows+uint64(evicted), max(flows, most))
	p.sets, p.evicted, p.batch.Evicted = 0, 0, 0
}

// excess is how many chunks an empty part may give back.
func (p *part) excess(needed int) int {
	switch {
	case needed >= len(p.chunks):
		p.quiet = 0
		return 0
	case p.quiet < quietDrains && 2*needed > len(p.chunks):
		p.quiet = 0
		return 0
	}
	if p.quiet++; p.quiet < quietDrains {
		return 0
	}
	return min(len(p.chunks)-needed, shrinkBy)
}
