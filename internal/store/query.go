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

	records, rows filter.Filter // the two parts of Filter, of a checked query
}

// Query answers from what is kept.
func (s *Store) Query(q Query) (Answer, error) {
	if err := q.Check(); err != nil {
		return Answer{}, err
	}
	v := s.view()
	a := q.run(v.intervals)
	a.Asked, a.Short = q.Since, v.short(q.Since)
	return a, nil
}

// Follow calls emit with an answer for each interval that ends, until ctx ends
// or emit fails. The window of the query is ignored.
func (s *Store) Follow(ctx context.Context, q Query, emit func(Answer) error) error {
	if err := q.Check(); err != nil {
		return err
	}
	return s.Watch(ctx, nil, func(e Ended) error { return emit(e.Answer(q)) })
}

// Ended is an interval that ended while somebody watched.
type Ended struct {
	interval *interval
	missed   uint64
}

// Answer answers a checked query from this interval; its window is ignored.
func (e Ended) Answer(q Query) Answer {
	q.Since = time.Time{}
	a := q.run([]*interval{e.interval})
	a.Missed = e.missed
	return a
}

// Watch calls emit with each interval that ends after it called began (nil: not
// needed), until ctx ends or emit fails. While emit runs, no other interval is held.
func (s *Store) Watch(ctx context.Context, began func(), emit func(Ended) error) error {
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
		e := Ended{v.intervals[i], v.intervals[i].sequence - seen - 1}
		v, seen = view{}, e.interval.sequence
		if err := emit(e); err != nil {
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

// run answers from the given intervals.
func (q *Query) run(intervals []*interval) Answer {
	a := Answer{By: q.By.Keys}
	g := newGrouping(q.By)
	var r flow.Record
	var pdm flow.PDM
	for _, iv := range intervals {
		if !iv.to.After(q.Since) {
			continue
		}
		if a.Intervals == 0 {
			a.From = iv.from
		}
		a.To = iv.to
		a.Intervals++
		a.Summed += iv.summed
		for i := range iv.rows.len() {
			iv.rows.at(i).record(iv, &r, &pdm)
			if q.records.Match(&r) {
				g.add(&r)
			}
		}
	}
	g.end(q.rows)
	a.Groups = len(g.merged)
	for _, w := range g.merged {
		a.Total.add(&w.Record)
		a.Records += w.Records
	}
	rank, compare := q.compare()
	a.Rows = g.rows(rank, compare, q.Limit)
	return a
}
