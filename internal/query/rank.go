package query

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// Engines that read columns are faster where a plan needs few counters: where it names them, or
// in a first pass by the one counter that it sorts by, which chooses the rows for the second pass.

// Counter is an engine that is faster so.
type Counter interface {
	Engine
	// Counts reports whether it is, for this plan.
	Counts(p *Plan) bool
	// Settled are the intervals from first to last that it is faster for: it has all of them as they were; last is 0 if
	// there are none.
	Settled() (first, last uint64)
}

// Counters are what a pass adds up; nil: all that rows have.
func (p *Plan) Counters() []*flow.Field { return p.counters }

// Summed are the counters of the answer's totals.
func (p *Plan) Summed() []*flow.Field {
	if p.sums != nil {
		return p.sums
	}
	return allCounters
}

var allCounters = func() (list []*flow.Field) {
	for i := range flow.CounterFields {
		list = append(list, &flow.CounterFields[i])
	}
	return list
}()

// Chosen reports whether only some groups are meant.
func (p *Plan) Chosen() bool { return p.only != nil }

// Prefixes are those that the groups that are meant have of a field: rows with other addresses are of none; nil: that is
// not known.
func (p *Plan) Prefixes(name string) []netip.Prefix { return p.prefixes[name] }

// RoundTrips reports whether rows have the means of round trips besides the counters that the plan names.
func (p *Plan) RoundTrips() bool {
	return p.sums != nil && slices.ContainsFunc(p.Reads, func(name string) bool { return strings.HasPrefix(name, "rtt.") })
}

// checkSums finds the fields of Sums.
func (p *Plan) checkSums() error {
	p.sums = nil
	if len(p.Sums) == 0 {
		return nil
	}
	for _, name := range append(slices.Clone(p.Sums), p.Sort) {
		f := counterNamed(name)
		switch {
		case f != nil && !slices.Contains(p.sums, f):
			p.sums = append(p.sums, f)
		case f == nil && name != p.Sort:
			return fmt.Errorf("sum %q: there are %s", name, strings.Join(CounterNames(), ", "))
		}
	}
	return nil
}

// counterNamed finds a counter by its name or an alias; nil: there is none.
func counterNamed(name string) *flow.Field {
	known := flow.FieldNamed(name)
	i := slices.IndexFunc(allCounters, func(f *flow.Field) bool { return known != nil && f.Name == known.Name })
	if i < 0 {
		return nil
	}
	return allCounters[i]
}

// Sorted is the counter that rows are sorted by; nil: it is another value.
func (p *Plan) Sorted() *flow.Field { return counterNamed(p.Sort) }

// CounterNames are what Plan.Sums may have.
func CounterNames() (names []string) {
	for _, f := range allCounters {
		names = append(names, f.Name)
	}
	return names
}

// counted is a pass over the counters that the plan names; nil: it needs more of records.
func (p *Plan) counted() *Plan {
	if !p.summed() || !p.columns() {
		return nil
	}
	pass := *p
	pass.counters = p.sums
	return &pass
}

// summed reports whether keys and the counters that the plan names say what its rows are, and their order.
func (p *Plan) summed() bool {
	key := slices.ContainsFunc(p.By.Keys, func(k Key) bool { return k.Name == p.Sort })
	return p.sums != nil && p.rows.Empty() && (key || p.Sort == "records" || counterNamed(p.Sort) != nil)
}

// Fields are those that an engine needs of a record, besides those that make a flow; nil: all.
func (p *Plan) Fields() []string {
	if !p.summed() && p.Reads == nil || !p.rows.Empty() || p.By.Whole() { // rows of whole flows have more than their keys
		return nil
	}
	names := append([]string{"initiator", "packets"}, p.Reads...) // by which folds turn; of which some were seen elsewhere
	for _, k := range p.By.Keys {
		f := keyDefs[defOf(k.Name)].field
		if f == nil {
			continue
		}
		if object, _ := f.Inside(); object != "" { // made of several fields
			return nil
		}
		names = append(names, f.Name)
	}
	counters := p.sums
	if counters == nil {
		counters = allCounters
	}
	for _, f := range counters {
		names = append(names, f.Name)
	}
	return names
}

// ranked is a pass that chooses the rows; nil: the plan has none.
func (p *Plan) ranked() *Plan {
	f := counterNamed(p.Sort)
	if p.Limit == 0 || p.Step != 0 || p.only != nil || f == nil || !p.columns() {
		return nil
	}
	pass := *p
	pass.counters = []*flow.Field{f}
	return &pass
}

// columns reports whether columns of keys and counters say what the rows of the plan are.
func (p *Plan) columns() bool {
	inner := func(k Key) bool { // a row has more of an inner object than the key
		object, _ := keyDefs[defOf(k.Name)].field.Inside()
		return object != ""
	}
	return p.rows.Empty() && !p.By.Whole() && p.By.Counted() && !slices.ContainsFunc(p.By.Keys, inner)
}

// narrow leaves of rows and totals what the plan names.
func (a *Answer) narrow(p *Plan, g *Grouping) {
	if p.sums == nil {
		return
	}
	for i := range a.Rows {
		w := &a.Rows[i]
		all := *w
		g.Begin(w, &all.Record, &Seen{In: all.In, Out: all.Out}, all.Time)
		w.Digest, w.Records, w.Counters, w.Back = all.Digest, all.Records, p.named(&all.Counters), p.named(&all.Back)
		if p.RoundTrips() {
			w.RTT, w.RTTSeen, w.responder, w.initiator = all.RTT, all.RTTSeen, all.responder, all.initiator
		}
	}
	for _, c := range []*flow.Counters{&a.Total, &a.Repeated} {
		*c = p.named(c)
	}
}

// Columnar reports whether the keys are fields of records as they are.
func (by By) Columnar() bool { return !by.Folds() && by.Counted() }

// Counted reports whether fields of a record alone say what its keys are.
func (by By) Counted() bool {
	return !slices.ContainsFunc(by.Keys, func(k Key) bool { return keyDefs[defOf(k.Name)].field == nil })
}

// Folds reports whether By.Turn changes ends.
func (by By) Folds() bool { return by.Fold != FoldNone || by.Services }

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
	if w.away != nil {
		s.Total.Subtract(w.away)
		s.Repeated.Add(w.away)
	}
}

// named are the counters that the plan names.
func (p *Plan) named(all *flow.Counters) (c flow.Counters) {
	for _, f := range p.sums {
		*f.Counter(&c) = *f.Counter(all)
	}
	return c
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
