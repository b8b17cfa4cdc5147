package store

import (
	"context"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
)

// Query says what is asked of the history. The zero Query asks for every flow.
type Query struct {
	Filter  filter.Filter
	Since   time.Time // intervals that ended after it; zero: all
	By      By        // no keys: ByFlow
	Sort    string    // one of SortNames, or a key of By; empty: bytes
	Reverse bool      // counters ascending, keys descending
	Limit   int       // rows; 0: all
}

// Query answers from what is kept.
func (s *Store) Query(q Query) (Answer, error) {
	if err := q.Check(); err != nil {
		return Answer{}, err
	}
	return q.run(s.view().intervals), nil
}

// Follow calls emit with an answer for each interval that ends, until ctx ends
// or emit fails. The window of the query is ignored.
func (s *Store) Follow(ctx context.Context, q Query, emit func(Answer) error) error {
	if err := q.Check(); err != nil {
		return err
	}
	q.Since = time.Time{}
	v := s.view()
	for {
		seen := v.sequence
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-v.changed:
		}
		v = s.view()
		for i, iv := range v.intervals {
			if iv.sequence <= seen {
				continue
			}
			a := q.run(v.intervals[i : i+1])
			a.Missed = iv.sequence - seen - 1
			seen = iv.sequence
			if err := emit(a); err != nil {
				return err
			}
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
	_, err := q.order()
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
		for i := range iv.rows {
			iv.rows[i].record(iv, &r, &pdm)
			if !q.Filter.Match(&r) {
				continue
			}
			a.Total.add(&r)
			a.Records++
			g.add(&r)
		}
	}
	a.Groups = len(g.merged)
	rank, compare := q.compare()
	a.Rows = g.rows(rank, compare, q.Limit)
	return a
}
