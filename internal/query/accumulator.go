package query

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// Accumulator merges records and rows into the groups of an engine that reads them in no order.
// It holds no more groups than the budget allows: what belongs to others is summed.
type Accumulator struct {
	grouping *Grouping
	plan     *Plan
	most     int
	index    map[Digest]int32
	chunks   [][]Row
	n        int
	rest     Row
}

// chunkRows is how many rows are allocated at once.
const chunkRows = 256

// NewAccumulator is for a checked plan.
func NewAccumulator(p *Plan, g *Grouping) *Accumulator {
	return &Accumulator{grouping: g, plan: p, most: p.Budget.Rows, index: map[Digest]int32{}}
}

// Record adds a record that Grouping.Take has taken.
func (a *Accumulator) Record(r *flow.Record, s *Seen, turned bool, step time.Time) {
	d, meant := a.grouping.Digest(r, s, step)
	if !meant {
		return
	}
	row, known := a.row(d)
	if !known {
		a.grouping.Begin(row, r, s, step)
		row.Digest = d
	}
	a.grouping.Add(row, r, s, turned)
}

// Row adds a row that was grouped elsewhere; it may share memory with others afterwards, which
// must not change.
func (a *Accumulator) Row(w *Row) {
	row, known := a.row(w.Digest)
	if !known && row != &a.rest {
		*row = *w
		return
	}
	row.Merge(w, a.grouping.whole)
}

// Partial is what somebody else summed of records that have the same keys, and the same of what rows keep only where records agree.
type Partial struct {
	flow.Record // keys as a fold turned them, what they agree on, and the sums
	Records     uint64
	Back, Again flow.Counters // of Row
	Trips       RoundTrips
}

// Partial adds such sums, which are changed.
func (a *Accumulator) Partial(p *Partial, step time.Time) {
	seen := Seen{}
	d, meant := a.grouping.Digest(&p.Record, &seen, step)
	if !meant {
		return
	}
	var w Row
	a.grouping.Begin(&w, &p.Record, &seen, step)
	w.Digest, w.repeated = d, p.Again
	if p.Records > 0 {
		w.Records, w.Back = p.Records, p.Back
		w.CopyMerged(&p.Record)
	}
	w.mergeInitiator(&p.Record)
	w.Measured(&p.Trips)
	if p.PDM != nil {
		w.PDM = p.PDM
	}
	w.mergeIOAM(&p.Record, false)
	a.Row(&w)
}

// row is where a group is summed; it is new unless known.
func (a *Accumulator) row(d Digest) (row *Row, known bool) {
	if i, ok := a.index[d]; ok {
		return a.at(int(i)), true
	}
	if a.n >= a.most {
		a.plan.Full()
		return &a.rest, true
	}
	if a.n%chunkRows == 0 {
		a.chunks = append(a.chunks, make([]Row, chunkRows))
	}
	a.index[d] = int32(a.n)
	a.n++
	return a.at(a.n - 1), false
}

func (a *Accumulator) at(i int) *Row { return &a.chunks[i/chunkRows][i%chunkRows] }

// Groups are those that were added; report is asked once they were taken.
func (a *Accumulator) Groups(r Report) Groups {
	if a.rest.Records > 0 && r.Partial == "" {
		r.Partial = tooMany(a.most)
	}
	return Groups{Report: r, Rows: a.rows(), Count: a.n, Rest: &a.rest}
}

// rows are in the order of their digests.
func (a *Accumulator) rows() iter.Seq[*Row] {
	return func(yield func(*Row) bool) {
		order := make([]int32, a.n)
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortFunc(order, func(x, y int32) int { return a.at(int(x)).Digest.Compare(a.at(int(y)).Digest) })
		for _, i := range order {
			if !yield(a.at(int(i))) {
				return
			}
		}
	}
}

// TooManyGroups is why an answer has not all groups.
func TooManyGroups(p *Plan) string { return tooMany(p.Budget.Rows) }

func tooMany(most int) string {
	return fmt.Sprintf("there are more groups than the %d that a query may hold: the others are in the total only; filter, or group by less", most)
}
