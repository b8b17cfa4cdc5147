package store

import (
	"context"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
)

// Query says what is asked of the history. The zero Query asks for every flow.
type Query struct {
	Filter  filter.Filter // tests of sums are of rows, all others of records
	Since   time.Time     // intervals that ended after it; zero: all
	By      By            // no keys: ByFlow
	Sort    string        // one of SortNames, or a key of By; empty: bytes
	Reverse bool          // counters ascending, keys descending
	Limit   int           // rows; 0: all
	// Everywhere counts a packet on each interface that it passes. Else it counts
	// once in the totals, and in rows that are of no interface or direction.
	Everywhere bool

	records, rows filter.Filter // the two parts of Filter, of a checked query
}

// Query answers from what is kept.
func (s *Store) Query(q Query) (Answer, error) {
	if err := q.Check(); err != nil {
		return Answer{}, err
	}
	v := s.view()
	first := slices.IndexFunc(v.intervals, func(iv *interval) bool { return iv.to.After(q.Since) })
	if first < 0 {
		first = len(v.intervals)
	}
	var before *interval
	if first > 0 {
		before = v.intervals[first-1]
	}
	a := q.run(before, v.intervals[first:], &scratch{})
	a.Asked, a.Short = q.Since, v.short(q.Since)
	return a, nil
}

// Period is a span of time that has ended and whose flows can be asked for.
type Period interface {
	// Answer answers a checked query from this period; its window is ignored. The rows
	// are valid until the next call.
	Answer(q Query) Answer
}

// ended is an interval that ended while somebody followed.
type ended struct {
	before   *interval // nil: not known
	interval *interval
	missed   uint64
	scratch  scratch // of all queries
}

func (e *ended) Answer(q Query) Answer {
	a := q.run(e.before, []*interval{e.interval}, &e.scratch)
	a.Missed = e.missed
	return a
}

// Follow calls emit with each interval that ends after it called began (nil: not
// needed), until ctx ends or emit fails. While emit runs, only that interval and the
// one before it are held.
func (s *Store) Follow(ctx context.Context, began func(), emit func(Period) error) error {
	seen := s.view().sequence
	if began != nil {
		began()
	}
	for {
		v := s.view()
		i := slices.IndexFunc(v.intervals, func(iv *interval) bool { return iv.sequence > seen })
		if i < 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-v.changed:
			}
			continue
		}
		e := ended{interval: v.intervals[i], missed: v.intervals[i].sequence - seen - 1}
		if i > 0 {
			e.before = v.intervals[i-1]
		}
		v, seen = view{}, e.interval.sequence
		if err := emit(&e); err != nil {
			return err
		}
	}
}

// Check refuses what cannot be answered, and fills in defaults.
func (q *Query) Check() error {
	if len(q.By.Keys) == 0 {
		q.By = ByFlow()
	}
	if q.Sort == "" {
		q.Sort = "bytes"
	}
	var err error
	if q.records, q.rows, err = q.Filter.Split(q.By.Whole()); err != nil {
		return err
	}
	_, err = q.order()
	return err
}

// run answers from the given intervals. In the one before them, packets may have
// been seen whose last sighting is in these: an interval ends between two.
func (q *Query) run(before *interval, intervals []*interval, sc *scratch) Answer {
	a := Answer{By: q.By.Keys}
	for i, iv := range intervals {
		if i == 0 {
			a.From = iv.from
		}
		a.To = iv.to
		a.Intervals++
		a.Summed += iv.summed
	}
	w := newWindow(intervals)
	g := newGrouping(q.By)
	g.seen = q.sightings(g, before, w, sc)
	g.everywhere = q.Everywhere
	items := g.collect(w, sc)
	top := newTop(q, g.count(items), sc)
	g.merge(w, items, func(row *Row) {
		if row.Records == 0 { // nothing but repeated packets
			if q.rows.Empty() {
				a.Repeated.Add(&row.repeated)
			}
			return
		}
		if !q.rows.Empty() && !q.rows.Match(&row.Record) {
			return
		}
		a.Groups++
		a.Records += row.Records
		a.Total.Add(&row.Counters)
		a.Repeated.Add(&row.repeated)
		if !g.once { // the row has them, too
			a.Total.Subtract(&row.repeated)
		}
		top.offer(row)
	})
	a.Rows = top.sorted()
	return a
}

// sightings joins the records that the filter matches.
func (q *Query) sightings(g *grouping, before *interval, w *window, sc *scratch) *sightings {
	s := newSightings(sc, w.len(), g.once && q.By.has("netns"), q.Everywhere && !g.passage)
	var r flow.Record
	var memory reports
	match := func(iv *interval, w *row) bool {
		if q.records.Empty() {
			return true
		}
		w.record(iv, &r, &memory)
		return q.records.Match(&r)
	}
	for _, iv := range w.intervals {
		s.enter(iv)
		for i := range iv.rows.len() {
			n, w := int32(notMatched), iv.rows.at(i)
			if match(iv, w) {
				n = s.add(w)
			}
			s.rows = append(s.rows, n)
		}
	}
	if before != nil && !s.idle {
		s.enter(before)
		for i := range before.rows.len() {
			if w := before.rows.at(i); match(before, w) {
				s.addBefore(w)
			}
		}
	}
	s.resolve()
	return s
}
