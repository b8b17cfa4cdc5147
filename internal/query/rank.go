package query

import (
	"iter"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// A plan with a limit that sorts by a counter may be answered in two passes: the first one adds
// that counter alone, for engines that read columns; the second one has all of the rows that it
// chose.

// Ranker is an engine that is faster so.
type Ranker interface {
	Engine
	// Ranks reports whether it is, for this plan.
	Ranks(p *Plan) bool
}

// Ranking is the counter of the first pass; nil: the plan is not one.
func (p *Plan) Ranking() *flow.Field { return p.ranking }

// Chosen reports whether only some groups are meant.
func (p *Plan) Chosen() bool { return p.only != nil }

// ranked is the counter by which a plan can be ranked; nil: it cannot.
func (p *Plan) ranked() *flow.Field {
	if p.Limit == 0 || p.Step != 0 || p.only != nil || !p.rows.Empty() || p.By.Whole() || !p.By.Columnar() {
		return nil
	}
	f := flow.FieldNamed(p.Sort)
	if f == nil || f.Counter == nil {
		return nil
	}
	return f
}

// Columnar reports whether the keys are fields of records as they are.
func (by By) Columnar() bool {
	return by.Fold == FoldNone && !by.Services && !slices.ContainsFunc(by.Keys, func(k Key) bool { return keyDefs[defOf(k.Name)].field == nil })
}

// Columns are the fields that tell groups apart.
func (g *Grouping) Columns() (names []string) {
	if g.addresses {
		names = append(names, "family")
	}
	if g.endpoints {
		names = append(names, "unattributed")
	}
	for _, p := range g.picks {
		if !slices.Contains(names, p.key.Name) {
			names = append(names, p.key.Name)
		}
	}
	return names
}

// Cut is how many bits of an address are distinguished; whole: it is not cut.
func (g *Grouping) Cut(name string) (bits4, bits6 int, whole bool) {
	for _, p := range g.picks {
		if p.key.Name == name && p.key.address() {
			return p.key.Bits4, p.key.Bits6, p.key.Bits4 == 32 && p.key.Bits6 == 128
		}
	}
	return 0, 0, true
}

// Once reports whether a packet counts in one row only.
func (g *Grouping) Once() bool { return g.once }

// Sums are what an engine counted of all records that match, in a first pass.
type Sums struct {
	Records         uint64
	Total, Repeated flow.Counters // as in Answer
}

// Add adds what was counted elsewhere.
func (s *Sums) Add(o *Sums) {
	s.Records += o.Records
	s.Total.Add(&o.Total)
	s.Repeated.Add(&o.Repeated)
}

// Row adds the sums of a row. Unless packets count once, the row has those that are repeated.
func (s *Sums) Row(w *Row, once bool) {
	s.Records += w.Records
	s.Total.Add(&w.Counters)
	s.Repeated.Add(&w.repeated)
	if !once {
		s.Total.Subtract(&w.repeated)
	}
}

// Rank adds so much of the counter of a plan, and so many records, to the group of a record that
// Grouping.Take has taken.
func (a *Accumulator) Rank(r *flow.Record, step time.Time, counter *flow.Field, n, records uint64) {
	s := Seen{}
	d, meant := a.grouping.Digest(r, &s, step)
	if !meant {
		return
	}
	row, known := a.row(d)
	if !known {
		a.grouping.Begin(row, r, &s, step)
		row.Digest = d
	}
	*counter.Counter(&row.Counters) += n
	row.Records += records
}

// Means reports whether the group of a record is meant.
func (g *Grouping) Means(r *flow.Record) bool {
	_, meant := g.Digest(r, &Seen{}, time.Time{})
	return meant
}

// counting adds the sums of rows on their way.
func counting(rows iter.Seq[*Row], s *Sums, once bool) iter.Seq[*Row] {
	return func(yield func(*Row) bool) {
		for w := range rows {
			s.Row(w, once)
			if !yield(w) {
				return
			}
		}
	}
}
