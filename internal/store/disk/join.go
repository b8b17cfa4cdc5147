package disk

import (
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// joinedRows is how many records are joined at once.
const joinedRows = 1 << 14

// joiner makes intervals of records, in their order, and groups them as the memory does.
type joiner struct {
	run     *run
	before  *store.Ended // the interval in front of the list; nil: not known
	list    []store.Ended
	rows    int
	last    uint64 // interval
	current *store.Builder
	head    *store.Head
}

// record takes a record of an interval.
func (j *joiner) record(h *store.Head, r *flow.Record, repeated uint64) {
	if h != j.head {
		j.end()
		j.head, j.current = h, store.NewBuilder(*h)
	}
	j.current.Add(r, repeated)
}

// end takes the interval whose records were taken.
func (j *joiner) end() {
	if j.current != nil {
		h, e := j.head, j.current.End()
		j.head, j.current = nil, nil
		j.ended(h, e)
	}
}

// ended takes an interval.
func (j *joiner) ended(h *store.Head, e store.Ended) {
	if h.Sequence != j.last+1 { // what is between has no records that match
		j.flush()
		j.before = nil
	}
	j.last = h.Sequence
	if !meant(j.run.plan, j.run.before, h) {
		j.flush()
		j.before = &e
		return
	}
	j.list = append(j.list, e)
	if j.rows += e.Len(); j.rows >= joinedRows {
		j.flush()
	}
}

// flush groups the list; its last interval is in front of the next one.
func (j *joiner) flush() {
	if len(j.list) == 0 {
		return
	}
	for w := range store.Group(j.run.plan, j.before, j.list).Rows {
		if j.run.plan.Counters() != nil {
			j.run.sums.Row(w, j.run.grouping.Once())
		}
		j.run.groups.Row(w)
	}
	last := j.list[len(j.list)-1]
	j.before, j.list, j.rows = &last, nil, 0
}

func (j *joiner) finish() {
	j.end()
	j.flush()
}
