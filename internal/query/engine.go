package query

import (
	"context"
	"iter"
	"time"
)

// Source has records, some of which it may forget at any time.
type Source interface {
	// Open returns what is there now; it stays until the engine is closed.
	Open() Engine
}

// Far is a Source that is asked over a network: only for what newer ones do not have.
type Far interface {
	Source
	// Far reports whether there is one to ask.
	Far() bool
}

// Engine is what a source has at one moment.
type Engine interface {
	// Name says where the records are.
	Name() string
	Span() Span
	// Explain estimates what a checked plan takes.
	Explain(p *Plan, before uint64) Cost
	// Run starts a checked plan over the intervals with numbers below before.
	Run(ctx context.Context, p *Plan, before uint64) (Groups, error)
	Close()
}

// Span is which intervals an engine has. Intervals have numbers that grow by one, whatever the
// clock does.
type Span struct {
	First, Last uint64    // 0: none
	Began       time.Time // of the first interval that the source ever had; zero: it had none
	Oldest      time.Time // the earliest begin of one that it has; zero: none
	Dropped     time.Time // end of the latest interval that it had to forget; zero: none
}

// has reports whether the engine has all that is asked for, as far as there ever was any.
func (s *Span) has(p *Plan) bool {
	return s.First > 0 && !p.Since.IsZero() && !p.Since.Before(s.Oldest) && !p.Since.Before(s.Dropped)
}

// Groups are the groups of one engine.
type Groups struct {
	Report
	// Rows are in the order of Row.Digest. Each is valid until the next.
	Rows  iter.Seq[*Row]
	Count int // how many there are; 0: not known
	// First are, in no order, the rows that may be among the first of the plan where no other engine
	// has any, and Left is how many others have records; nil: not known.
	First iter.Seq[*Row]
	Left  int
	// Rest is the sum of records whose groups are not among the rows; nil: there are none.
	Rest *Row
	// Sums is what was counted of all records, in a pass of a Counter; nil: the rows say it.
	Sums *Sums
}

// Report is what groups are made of.
type Report struct {
	From, To  time.Time // of the intervals; zero: there are none
	Intervals int
	Summed    uint64 // records that were too many to keep
	Lost      uint64 // intervals that the engine should have, and has not
	Partial   string // why not all records are in the groups; empty: they are
}

// add adds what another engine reports.
func (r *Report) add(o *Report) {
	if r.From.IsZero() || !o.From.IsZero() && o.From.Before(r.From) {
		r.From = o.From
	}
	if o.To.After(r.To) {
		r.To = o.To
	}
	r.Intervals += o.Intervals
	r.Summed += o.Summed
	r.Lost += o.Lost
	if r.Partial == "" {
		r.Partial = o.Partial
	}
}
