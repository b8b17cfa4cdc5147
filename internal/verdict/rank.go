package verdict

import (
	"cmp"
	"slices"

	"github.com/waymark-net/waymark/internal/order"
)

// mostOfKind is how many verdicts of one kind are listed: the rest is counted.
const mostOfKind = 3

// rank joins what was found in several windows, takes out what follows from something else, and
// cuts the rest.
func rank(found []Verdict) (list []Verdict, more int) {
	list = explain(distinct(found))
	byRank(list)
	of, first := map[Kind]int{}, map[Kind]int{}
	kept := make([]Verdict, 0, len(list)) // never nil: in JSON, no verdicts are []
	for _, v := range list {
		if of[v.Kind]++; of[v.Kind] > mostOfKind {
			like := &kept[first[v.Kind]]
			like.Others++
			like.Consequences = append(like.Consequences, v.Consequences...)
			continue
		}
		if of[v.Kind] == 1 {
			first[v.Kind] = len(kept)
		}
		kept = append(kept, v)
	}
	if len(kept) > Most {
		more = len(kept) - Most
		kept = kept[:Most]
	}
	return kept, more
}

// byRank sorts the worst first; equal ones by what they say, so that the order does not change.
func byRank(list []Verdict) {
	order.By(list, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.scope.id, b.scope.id))
	})
}

// worse reports whether one thing is worse in the window of v: sums are compared by their rates. What is as bad is
// chosen by what it says, so that the order in which it was found does not matter.
func (v *Verdict) worse(o *Verdict) bool {
	by := cmp.Compare(v.Score, o.Score)
	if v.Unit == packets {
		by = cmp.Compare(v.Value*o.To.Sub(o.From).Seconds(), o.Value*v.To.Sub(v.From).Seconds())
	}
	return cmp.Or(by, cmp.Compare(v.Value, o.Value), cmp.Compare(v.Samples, o.Samples), cmp.Compare(v.Text, o.Text)) > 0
}

// distinct keeps of each thing the window in which it is worst.
func distinct(found []Verdict) (list []Verdict) {
	at := map[[2]string]int{}
	for _, v := range found {
		id := [2]string{string(v.Kind), v.scope.id}
		i, known := at[id]
		switch {
		case !known:
			at[id] = len(list)
			list = append(list, v)
		case v.worse(&list[i]):
			list[i] = v
		}
	}
	return list
}

// explain makes consequences of those that another one accounts for. Causes are tried in the order
// of the rules, a hop before a path.
func explain(list []Verdict) []Verdict {
	causes := slices.Clone(list)
	order.By(causes, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(rankOf(a.Kind), rankOf(b.Kind)), -compareBool(a.scope.located, b.scope.located), cmp.Compare(b.Score, a.Score), cmp.Compare(a.scope.id, b.scope.id))
	})
	gone := make([]bool, len(causes))
	for i := range causes {
		if gone[i] {
			continue
		}
		for j := i + 1; j < len(causes); j++ {
			if !gone[j] && causes[i].accountsFor(&causes[j]) {
				gone[j] = true
				causes[i].Consequences = append(causes[i].Consequences, Consequence{causes[j].Kind, causes[j].Text})
			}
		}
	}
	kept := causes[:0]
	for i := range causes {
		if !gone[i] {
			kept = append(kept, causes[i])
		}
	}
	return kept
}

func rankOf(k Kind) int { return slices.IndexFunc(rules, func(r rule) bool { return r.kind == k }) }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// accountsFor reports whether o follows from v.
func (v *Verdict) accountsFor(o *Verdict) bool {
	r := ruleOf(v.Kind)
	switch {
	case r == nil || !slices.Contains(r.explains, o.Kind):
		return false
	case v.Kind == o.Kind && (!v.scope.located || o.scope.located):
		return false // two hops, or two paths, are two things
	case v.scope.dropped > 0 && o.scope.lost > 0 && 2*v.scope.dropped >= o.scope.lost:
		return true
	}
	return v.Value >= o.scope.loss && v.scope.overlaps(&o.scope)
}

// overlaps reports whether two verdicts are about a host or an interface in common.
func (s *scope) overlaps(o *scope) bool {
	for a := range s.addresses {
		if o.addresses[a] {
			return true
		}
	}
	for p := range s.places {
		if o.places[p] {
			return true
		}
	}
	return false
}
