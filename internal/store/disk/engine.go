package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// engine is what the store has at one moment.
type engine struct {
	store    *Store
	segments []*segment
	log      *os.File // nil: there is none
	heads    []store.Head
	span     query.Span
}

// Open implements query.Source.
func (s *Store) Open() query.Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &engine{store: s, segments: s.segments, span: query.Span{Last: s.last, Began: s.began, Dropped: s.dropped}}
	if s.log != nil && len(s.log.heads) > 0 {
		if file, err := os.Open(s.log.path); err == nil { // it stays readable after it is removed
			e.log, e.heads = file, slices.Clone(s.log.heads)
			e.span.First, e.span.Oldest = e.heads[0].Sequence, oldestOf(e.heads)
		}
	}
	if len(e.segments) > 0 {
		e.span.First = e.segments[0].first
	}
	for _, seg := range e.segments {
		seg.use()
		if e.span.Oldest.IsZero() || seg.oldest.Before(e.span.Oldest) {
			e.span.Oldest = seg.oldest
		}
	}
	return e
}

// Close implements query.Engine.
func (e *engine) Close() {
	for _, seg := range e.segments {
		seg.release()
	}
	if e.log != nil {
		e.log.Close()
	}
}

// Name implements query.Engine.
func (e *engine) Name() string { return "disk" }

// Span implements query.Engine.
func (e *engine) Span() query.Span { return e.span }

// asked are the intervals of a list that a plan is about.
func asked(p *query.Plan, before uint64, heads []store.Head) (n, rows int) {
	for i := range heads {
		if meant(p, before, &heads[i]) {
			n++
			rows += heads[i].Rows
		}
	}
	return n, rows
}

func meant(p *query.Plan, before uint64, h *store.Head) bool {
	return h.Sequence < before && p.Meant(h.Sequence, h.From, h.To)
}

// Explain implements query.Engine.
func (e *engine) Explain(p *query.Plan, before uint64) (c query.Cost) {
	for _, seg := range e.segments {
		n, rows := asked(p, before, seg.heads)
		if n == 0 {
			c.Skipped += uint64(seg.rows)
			continue
		}
		c.Intervals += n
		c.Records += uint64(rows)
		c.Skipped += uint64(seg.rows - rows)
		c.Bytes += uint64(seg.bytes)
	}
	n, rows := asked(p, before, e.heads)
	c.Intervals += n
	c.Records += uint64(rows)
	return c
}

// run is a plan that runs.
type run struct {
	*engine
	ctx      context.Context
	plan     *query.Plan
	before   uint64
	grouping *query.Grouping
	matches  selection
	groups   *query.Accumulator
	counts   *counts // nil: every record is read
	memory   memory
	report   query.Report
	last     uint64 // interval
	bytes    uint64
	join     bool // where packets were seen first has to be found out again
	joiner   joiner
	sums     query.Sums                  // in a first pass
	full     bool                        // nobody reads what is in more rows
	spent    string                      // the budget ended: why
	sighted  func([]query.Sighting) bool // only this is asked; nil: for groups
}

// Run implements query.Engine.
func (e *engine) Run(ctx context.Context, p *query.Plan, before uint64) (query.Groups, error) {
	r := e.newRun(ctx, p, before)
	r.all()
	r.joiner.finish()
	groups := r.groups.Groups(r.report)
	if r.counts != nil && p.Counters() != nil {
		groups = r.counts.answer(groups)
	}
	if groups.Partial != "" {
		e.store.count(func(c *obs.HistoryCounts) { c.Partial++ })
	}
	return groups, nil
}

func (e *engine) newRun(ctx context.Context, p *query.Plan, before uint64) *run {
	g := query.NewGrouping(p)
	r := &run{engine: e, ctx: ctx, plan: p, before: before, grouping: g, matches: filter.Compile(p.Records(), selections())}
	r.groups = query.NewAccumulator(p, g)
	r.join = g.Joins(p)
	r.joiner = joiner{run: r}
	if !r.join && (p.Counters() != nil || p.Chosen() && p.By.Counted()) {
		r.counts = newCounts(r)
	}
	return r
}

// all reads what is asked for, file by file, and the log.
func (r *run) all() {
	for i, seg := range r.segments {
		if r.over() {
			break
		}
		if n, _ := asked(r.plan, r.before, seg.heads); n > 0 || r.join && r.sighted == nil && r.leads(r.plan, r.before, i) {
			r.segment(seg)
		}
	}
	if !r.over() {
		r.logged()
	}
}

// leads reports whether the interval behind a file is asked for: packets may have been seen first
// in the last one of the file.
func (e *engine) leads(p *query.Plan, before uint64, i int) bool {
	next := e.heads
	if i+1 < len(e.segments) {
		next = e.segments[i+1].heads
	}
	return len(next) > 0 && next[0].Sequence == e.segments[i].last+1 && meant(p, before, &next[0])
}

// over reports whether the plan has used up its budget, and says so in the report.
func (r *run) over() bool {
	switch {
	case r.full:
		return true
	case r.ctx.Err() != nil:
		r.end(fmt.Sprintf("the time of the query (%v) ended: ask for less time, filter by address, or allow more with timeout", r.plan.Budget.Time))
	case r.bytes > r.plan.Budget.Bytes:
		r.end(fmt.Sprintf("more than %d bytes would have to be read: ask for less time, or filter by address", r.plan.Budget.Bytes))
	default:
		return false
	}
	return true
}

// end ends the run, because the budget did.
func (r *run) end(why string) {
	r.spent = why
	r.partial(why)
}

func (r *run) partial(why string) {
	if r.report.Partial == "" {
		r.report.Partial = why
	}
}

// note adds an interval to the report.
func (r *run) note(h *store.Head, first uint64) {
	if r.report.From.IsZero() || h.From.Before(r.report.From) {
		r.report.From = h.From
	}
	if h.To.After(r.report.To) {
		r.report.To = h.To
	}
	if r.last > 0 && first > r.last+1 {
		r.report.Lost += first - r.last - 1
	}
	r.last = h.Sequence
	r.report.Intervals++
	r.report.Summed += h.Summed
}

// segment answers from a file.
func (r *run) segment(seg *segment) {
	file, checked, err := openParquet(seg.path)
	if err == nil {
		defer checked.Close()
		for i := range seg.groups {
			if r.over() {
				return
			}
			b := newBlock(file, seg, i, &r.memory)
			switch {
			case r.sighted != nil:
				err = r.sight(b)
			case r.join:
				err = r.joined(b)
			case r.plan.Counters() != nil:
				err = r.counts.block(b)
			default:
				err = r.simple(b)
			}
			b.close()
			if err != nil {
				break
			}
		}
	}
	if err != nil {
		if r.ctx.Err() == nil {
			r.store.damaged(seg, err)
			n, _ := asked(r.plan, r.before, seg.heads)
			r.report.Lost += uint64(n)
			r.partial(err.Error())
		}
		return
	}
	r.bytes += uint64(seg.bytes)
	for i := range seg.heads {
		if h := &seg.heads[i]; meant(r.plan, r.before, h) {
			first := h.Sequence
			if seg.aged {
				first = seg.first
			}
			r.note(h, first)
		}
	}
}

// fewRows says of which share of its rows on a block is read page by page.
const fewRows = 64

// at are the rows of a block that are asked for; all: of every interval that the block has.
func (r *run) at(b *block, all bool) (at []int32, err error) {
	match := matched{all: true}
	if !r.plan.Records().Empty() {
		if match, err = r.matches(b); err != nil || match.none() {
			return nil, err
		}
	}
	at = b.memory.codes(b.rows)[:0]
	b.intervals(func(h *store.Head, from, to int) {
		if !all && !meant(r.plan, r.before, h) {
			return
		}
		if match.all {
			for row := from; row < to; row++ {
				at = append(at, int32(row))
			}
			return
		}
		for row := match.next(from, to); row < to; row = match.next(row+1, to) {
			at = append(at, int32(row))
		}
	})
	if len(at) < b.rows/fewRows {
		b.wanted = slices.Clone(at)
	}
	return at, nil
}

// intervals calls each with the rows that an interval has in the block.
func (b *block) intervals(each func(h *store.Head, from, to int)) {
	row := -b.first
	for i := range b.segment.heads {
		h := &b.segment.heads[i]
		if from, to := max(row, 0), min(row+h.Rows, b.rows); from < to {
			each(h, from, to)
		}
		row += h.Rows
	}
}

// simple adds records with what was stored about where their packets were seen first.
func (r *run) simple(b *block) error {
	at, err := r.at(b, false)
	if err == nil && len(at) > 0 && r.counts != nil {
		at, err = r.counts.chosen(b, at)
	}
	if err != nil || len(at) == 0 {
		return err
	}
	heads := b.headOf()
	return b.records(r.ctx, at, r.wanted(), func(row int, record *flow.Record, repeated uint64) {
		s := query.Seen{Repeated: min(repeated, record.Packets)}
		if r.grouping.Idle() {
			s.Repeated = 0
		}
		turned := r.grouping.Take(record, &s)
		r.groups.Record(record, &s, turned, r.plan.Bucket(heads(row).From))
	})
}

// headOf finds the interval of rows that are asked for in their order.
func (b *block) headOf() func(row int) *store.Head {
	parts := b.parts()
	return func(row int) *store.Head {
		for row >= parts[0].to {
			parts = parts[1:]
		}
		return parts[0].head
	}
}

// part is the interval of rows up to one.
type part struct {
	head *store.Head
	to   int
}

func (b *block) parts() (parts []part) {
	b.intervals(func(h *store.Head, _, to int) { parts = append(parts, part{h, to}) })
	return parts
}

// joined adds records after it was found out again where their packets were seen first, among
// the records that match.
func (r *run) joined(b *block) error {
	at, err := r.at(b, true)
	if err != nil || len(at) == 0 {
		return err
	}
	heads := b.headOf()
	return b.records(r.ctx, at, r.wanted(), func(row int, record *flow.Record, repeated uint64) {
		r.joiner.record(heads(row), record, repeated)
	})
}

// logged answers from the log.
func (r *run) logged() {
	if n, _ := asked(r.plan, r.before, r.heads); n == 0 {
		return
	}
	r.joiner.end()
	rest := r.heads // that were not read
	_, err := readLog(r.log, func(d *store.Decoder, b []byte) error {
		if r.over() || len(rest) == 0 {
			return errEnough
		}
		ended, err := d.Decode(b)
		if err != nil {
			return err
		}
		h := ended.Head()
		switch {
		case r.sighted == nil:
			r.joiner.ended(&h, ended)
		case meant(r.plan, r.before, &h):
			ended.Sightings(r.plan.Records(), r.sighted)
		}
		if rest = rest[1:]; meant(r.plan, r.before, &h) {
			r.note(&h, h.Sequence)
		}
		return nil
	})
	if n, _ := asked(r.plan, r.before, rest); n > 0 && err == nil {
		r.report.Lost += uint64(n)
		err = errLogDamaged
	}
	if err != nil && !errors.Is(err, errEnough) {
		r.partial("the log of the history cannot be read: " + err.Error())
	}
}

var (
	errEnough     = errors.New("enough")
	errLogDamaged = errors.New("it is damaged, its last intervals are lost; check the disk")
)
