package store

import (
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// Ended is an interval that has ended, with the one before it, for those who keep it longer than
// the memory does. It is never changed.
type Ended struct {
	iv     *interval
	before *interval // nil: not known
	// repeated is how many packets of each row were seen before; nil: not computed yet.
	repeated []uint64
}

// OnEnd has each called with every interval that ends from now on, by whoever ends it.
func (s *Store) OnEnd(each func(Ended)) { s.onEnd = each }

// Resume has the numbers of intervals go on after the last of an earlier agent.
func (s *Store) Resume(last uint64) { s.sequence = last }

// Sequence is the number of the interval.
func (e *Ended) Sequence() uint64 { return e.iv.sequence }

// Period is from when to when it lasted.
func (e *Ended) Period() (from, to time.Time) { return e.iv.from, e.iv.to }

// Summed is how many records were too many to keep.
func (e *Ended) Summed() uint64 { return e.iv.summed }

// Wiring is how the interfaces hung together; nil: not known.
func (e *Ended) Wiring() *flow.Wiring { return e.iv.wiring }

// Len is how many records there are.
func (e *Ended) Len() int { return e.iv.rows.len() }

// Each calls a function with every record, which is valid until the next one.
func (e *Ended) Each(each func(*flow.Record)) {
	var r flow.Record
	var memory reports
	for i := range e.Len() {
		e.iv.rows.at(i).record(e.iv, &r, &memory)
		each(&r)
	}
}

// Repeated is how many packets of each record were seen before, where no filter leaves records
// out and network namespaces are not distinguished.
func (e *Ended) Repeated() []uint64 {
	if e.repeated == nil {
		e.repeated = make([]uint64, e.Len())
		sc := scratches.Get().(*scratch)
		defer scratches.Put(sc)
		s := newSightings(sc, false, false)
		s.resolveInterval(e.before, e.iv, filter.Filter{}, func(i int, x *sighting) {
			if x != nil {
				e.repeated[i] = x.take(e.iv.rows.at(i).Packets)
			}
		})
	}
	return e.repeated
}

// scratches are memory for that, which intervals use one after the other.
var scratches = sync.Pool{New: func() any { return &scratch{} }}

// Head is what is known of an interval without its records.
type Head struct {
	Sequence uint64
	From, To time.Time
	Summed   uint64
	Rows     int
	Wiring   *flow.Wiring
}

// Head of the interval.
func (e *Ended) Head() Head {
	return Head{e.iv.sequence, e.iv.from, e.iv.to, e.iv.summed, e.Len(), e.iv.wiring}
}

// Builder makes an interval of records that were read from elsewhere.
type Builder struct {
	filling  Interval
	repeated []uint64
}

// NewBuilder begins with what is known without records.
func NewBuilder(h Head) *Builder {
	iv := &interval{sequence: h.Sequence, from: h.From, to: h.To, summed: h.Summed, wiring: h.Wiring}
	return &Builder{filling: Interval{iv: iv, index: map[link]uint32{}}, repeated: []uint64{}}
}

// Add takes one record; r is not kept.
func (b *Builder) Add(r *flow.Record, repeated uint64) {
	b.filling.keep(r)
	b.repeated = append(b.repeated, repeated)
}

// End is the interval.
func (b *Builder) End() Ended { return Ended{iv: b.filling.iv, repeated: b.repeated} }

// Group groups the records of intervals. In the one before them (nil: not known) packets may
// have been seen first.
func Group(p *query.Plan, before *Ended, list []Ended) query.Groups {
	w := &window{firsts: make([]int, 1, len(list)+1)}
	for i := range list {
		w.add(list[i].iv)
		w.repeated = append(w.repeated, list[i].repeated)
	}
	var first *interval
	if before != nil {
		first = before.iv
	}
	return runWindow(p, first, w, &scratch{})
}

// Objects adds which inner objects some record has.
func (e *Ended) Objects(with map[string]bool) {
	if len(e.iv.drops) > 0 {
		with["drops"] = true
	}
	for i := range e.Len() {
		if at := e.iv.rows.at(i).reported; at != 0 {
			has := e.iv.reported[at-1]
			with["pdm"], with["ioam"] = with["pdm"] || has&hasPDM != 0, with["ioam"] || has&hasIOAM != 0
		}
	}
}

// Numbered is the interval under another number, as a store gives it that keeps intervals of another host.
func (e *Ended) Numbered(n uint64) Ended {
	iv := *e.iv
	iv.sequence = n
	return Ended{iv: &iv, repeated: e.Repeated()}
}
