package gate

import (
	"runtime"
	"sync/atomic"

	"github.com/waymark-net/waymark/internal/gate/engine"
)

// tally is what the programs of an agent have counted, in memory that they share with it. Packets that were like the one before
// are in the part of their processor and epoch until another packet comes, with which its program adds them to the counters of
// their rule.
type tally struct {
	counts []engine.Count    // per CPU, by slot
	parts  []engine.DropPart // two per CPU
	each   uint32            // slots of a processor
}

// totals are the sums of all processors, by slot: of each no less than had been counted at the beginning, and no more than at the end.
func (t *tally) totals() []Counts {
	sums, row := make([]Counts, t.each), make([]engine.Count, t.each)
	for cpu := range len(t.counts) / len(row) {
		own := t.counts[cpu*len(row):][:len(row)]
		var most [2]likeOthers
		if cpu < len(t.parts)/2 {
			most = t.withAlike(cpu, own)
		}
		copy(row, own)
		for _, m := range most { // they may have been added since
			c := &row[m.slot]
			c.Dropped, c.DroppedBytes = max(c.Dropped, m.packets), max(c.DroppedBytes, m.bytes)
		}
		for slot := range row {
			sums[slot].add(&row[slot])
		}
	}
	return sums
}

// likeOthers are packets of a rule that were like the one before.
type likeOthers struct {
	slot           uint32
	packets, bytes uint64
}

// withAlike is what the rules of both parts of a processor have dropped, with the packets that are in the parts only.
func (t *tally) withAlike(cpu int, own []engine.Count) (most [2]likeOthers) {
	t.quietly(cpu, func(parts [2]*engine.Again) {
		alike := [2]likeOthers{t.pending(parts[0]), t.pending(parts[1])}
		for i := range most {
			c := &own[alike[i].slot]
			most[i] = likeOthers{alike[i].slot, c.Dropped + alike[i].packets, c.DroppedBytes + alike[i].bytes}
			if other := alike[1-i]; other.slot == alike[i].slot {
				most[i].packets, most[i].bytes = most[i].packets+other.packets, most[i].bytes+other.bytes
			}
		}
	})
	return most
}

// waits reports for which slots a program is going to count packets that were like others.
func (t *tally) waits() map[uint16]bool {
	slots := map[uint16]bool{}
	for cpu := range len(t.parts) / 2 {
		var alike [2]likeOthers
		t.quietly(cpu, func(parts [2]*engine.Again) {
			alike = [2]likeOthers{t.pending(parts[0]), t.pending(parts[1])}
		})
		for _, a := range alike {
			if a.packets > 0 {
				slots[uint16(a.slot)] = true
			}
		}
	}
	return slots
}

// pending are packets that the counters of their rule do not have.
func (t *tally) pending(a *engine.Again) likeOthers {
	n := a.Packets
	return likeOthers{a.Count % t.each, n, n * uint64(a.Bytes)}
}

// quietly has f read the parts of a processor, and again while programs move something from there to the counters of a rule, which
// takes them a few instructions.
func (t *tally) quietly(cpu int, f func([2]*engine.Again)) {
	parts := [2]*engine.Again{&t.parts[2*cpu].Again, &t.parts[2*cpu+1].Again}
	turns := func() [2]uint32 {
		return [2]uint32{atomic.LoadUint32(&parts[0].Turns), atomic.LoadUint32(&parts[1].Turns)}
	}
	for {
		before := turns()
		f(parts)
		if turns() == before && (before[0]|before[1])&1 == 0 {
			return
		}
		runtime.Gosched()
	}
}
