package query

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/suggest"
)

// sortDef is a value that rows are sorted by; the largest first. A rank takes time,
// and is computed once for each row.
type sortDef struct {
	name    string
	compare func(a, b *Row) int
	rank    func(*Row) int64
}

// rowSorts are what only rows have.
var rowSorts = []sortDef{
	{name: "records", compare: func(a, b *Row) int { return cmp.Compare(b.Records, a.Records) }},
	{name: "rate", compare: func(a, b *Row) int { return cmp.Compare(b.Rate(), a.Rate()) }},
	ranked("delay", unmarked, func(w *Row) int64 { return int64(w.PDM.Server.Quantile(0.5) + w.PDM.Network.Quantile(0.5)) }),
	ranked("delays", unmarked, func(w *Row) int64 { return int64(max(w.PDM.Server.Count, w.PDM.Network.Count)) }),
}

func unmarked(w *Row) bool { return w.PDM == nil }

// sorted are what rows can be sorted by in addition to their keys.
var sorted = func() []sortDef {
	list := slices.Clone(rowSorts)
	merges := []flow.Merge{flow.MergeSum, flow.MergeMin, flow.MergeMax, flow.MergeMean, flow.MergeDelays}
	for _, f := range flow.FieldsMerged(merges...) {
		if def, ok := sortByField(f); ok {
			list = append(list, def)
		}
	}
	return list
}()

func sortByField(f *flow.Field) (sortDef, bool) {
	switch {
	case f.Compare != nil:
		return sortDef{name: f.Short(), compare: func(a, b *Row) int { return f.Compare(&b.Record, &a.Record) }}, true
	case f.Uint != nil:
		return ranked(f.Short(), func(w *Row) bool { return f.Missing(&w.Record) }, func(w *Row) int64 {
			if f.Kind == flow.Signed {
				return int64(f.Uint(&w.Record))
			}
			return int64(min(f.Uint(&w.Record), math.MaxInt64))
		}), true
	}
	return sortDef{}, false
}

// ranked sorts by a value that takes time; rows without it come last.
func ranked(name string, missing func(*Row) bool, value func(*Row) int64) sortDef {
	return sortDef{
		name:    name,
		compare: func(a, b *Row) int { return cmp.Compare(b.rank, a.rank) },
		rank: func(w *Row) int64 {
			if missing(w) {
				return math.MinInt64
			}
			return value(w)
		},
	}
}

// SortNames lists what rows can be sorted by in addition to their keys, and fields of inner
// objects that have no short name.
func SortNames() (names []string) {
	for i := range sorted {
		if !strings.Contains(sorted[i].name, ".") {
			names = append(names, sorted[i].name)
		}
	}
	return names
}

// order finds the comparison for q.Sort.
func (p *Plan) order() (sortDef, error) {
	known := SortNames()
	name := p.Sort
	if f := flow.FieldNamed(name); f != nil {
		name = f.Short() // or another of its names
	}
	for i := range sorted {
		if sorted[i].name == name {
			return sorted[i], nil
		}
	}
	for _, k := range p.By.Keys {
		if k.Name == p.Sort {
			return sortDef{name: k.Name, compare: keyDefs[defOf(k.Name)].compare}, nil
		}
		known = append(known, k.Name)
	}
	if near := suggest.Nearest(p.Sort, known); near != "" {
		return sortDef{}, fmt.Errorf("sort by %q: did you mean %s?", p.Sort, near)
	}
	return sortDef{}, fmt.Errorf("sort by %q: there are %s", p.Sort, strings.Join(known, ", "))
}

// compare is the whole order of rows, once rank, unless nil, was asked of each.
// Equal ones stand in an order that does not
// change from call to call.
func (p *Plan) compare() (rank func(*Row) int64, compare func(a, b *Row) int) {
	order, err := p.order()
	if err != nil {
		panic("query: " + err.Error()) // Check came before
	}
	keys := slices.DeleteFunc(slices.Clone(keyDefs), func(d keyDef) bool { return !p.By.has(d.name) }) // rows may have more
	return order.rank, func(a, b *Row) int {
		c := order.compare(a, b)
		if p.Reverse {
			c = -c
		}
		if c != 0 {
			return c
		}
		return compareKeys(keys, a, b)
	}
}

func compareKeys(keys []keyDef, a, b *Row) int {
	for i := range keys {
		if c := keys[i].compare(a, b); c != 0 {
			return c
		}
	}
	if a.Unattributed != b.Unattributed { // what could not be attributed has a row of its own
		return cmp.Compare(boolean(a.Unattributed), boolean(b.Unattributed))
	}
	return cmp.Or(cmp.Compare(a.Family, b.Family), a.Time.Compare(b.Time))
}
