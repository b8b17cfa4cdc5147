package store

import (
	"context"
	"slices"

	"github.com/waymark-net/waymark/internal/query"
)

// Query answers a plan from memory, and from what lies behind it.
func (s *Store) Query(ctx context.Context, p query.Plan) (query.Answer, error) {
	return s.executor().Answer(ctx, p)
}

// Explain says what a plan will take.
func (s *Store) Explain(p query.Plan) (query.Explanation, error) { return s.executor().Explain(p) }

func (s *Store) executor() *query.Executor {
	return &query.Executor{Host: s.host, Sources: append([]query.Source{s}, s.behind...)}
}

// Behind has plans answered by sources that keep intervals longer, too. host is whose records
// they are.
func (s *Store) Behind(host string, sources ...query.Source) { s.host, s.behind = host, sources }

// Open implements query.Source.
func (s *Store) Open() query.Engine {
	v := s.view()
	return &v
}

// Name implements query.Engine.
func (v *view) Name() string { return "memory" }

// Close implements query.Engine.
func (v *view) Close() {}

// Span implements query.Engine.
func (v *view) Span() query.Span {
	s := query.Span{Began: v.began, Dropped: v.dropped}
	if len(v.intervals) > 0 {
		s.First, s.Last = v.intervals[0].sequence, v.sequence
	}
	for _, iv := range v.intervals { // the clock may have stepped back
		if s.Oldest.IsZero() || iv.from.Before(s.Oldest) {
			s.Oldest = iv.from
		}
	}
	return s
}

// Explain implements query.Engine.
func (v *view) Explain(p *query.Plan, _ uint64) (c query.Cost) {
	for _, iv := range v.intervals {
		if !p.Meant(iv.sequence, iv.from, iv.to) {
			c.Skipped += uint64(iv.rows.len())
			continue
		}
		c.Intervals++
		c.Records += uint64(iv.rows.len())
	}
	return c
}

// Run implements query.Engine. Where the clock stepped, the intervals that are asked for may not
// follow each other: the others are skipped.
func (v *view) Run(_ context.Context, p *query.Plan, _ uint64) (query.Groups, error) {
	var before *interval
	var asked []*interval
	for _, iv := range v.intervals {
		switch {
		case p.Meant(iv.sequence, iv.from, iv.to):
			asked = append(asked, iv)
		case len(asked) == 0:
			before = iv
		}
	}
	return run(p, before, asked, &scratch{}), nil
}

// Period is a span of time that has ended and whose flows can be asked for.
type Period interface {
	// Answer answers a checked plan from this period; its range is ignored. The rows
	// are valid until the next call.
	Answer(p query.Plan) query.Answer
}

// ended is an interval that ended while somebody followed.
type ended struct {
	before   *interval // nil: not known
	interval *interval
	missed   uint64
	scratch  scratch // of all plans
}

func (e *ended) Answer(p query.Plan) query.Answer {
	a := p.Collect([]query.Groups{run(&p, e.before, []*interval{e.interval}, &e.scratch)}, &e.scratch.collect)
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
