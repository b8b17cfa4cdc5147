package store

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/waymark-net/waymark/internal/suggest"
)

// sortDefs are what rows can be sorted by besides their keys; the largest first.
var sortDefs = []struct {
	name    string
	compare func(a, b *Row) int
}{
	{"bytes", func(a, b *Row) int { return cmp.Compare(b.Bytes, a.Bytes) }},
	{"packets", func(a, b *Row) int { return cmp.Compare(b.Packets, a.Packets) }},
	{"wire_bytes", func(a, b *Row) int { return cmp.Compare(b.WireBytes, a.WireBytes) }},
	{"payload_bytes", func(a, b *Row) int { return cmp.Compare(b.PayloadBytes, a.PayloadBytes) }},
	{"records", func(a, b *Row) int { return cmp.Compare(b.Records, a.Records) }},
	{"rate", func(a, b *Row) int { return cmp.Compare(b.Rate(), a.Rate()) }},
	{"rtt", func(a, b *Row) int { return cmp.Compare(b.RTT.Handshake(), a.RTT.Handshake()) }},
	{"first", func(a, b *Row) int { return b.First.Compare(a.First) }},
	{"last", func(a, b *Row) int { return b.Last.Compare(a.Last) }},
}

// SortNames lists what rows can be sorted by besides their keys.
func SortNames() []string {
	names := make([]string, len(sortDefs))
	for i := range sortDefs {
		names[i] = sortDefs[i].name
	}
	return names
}

// order finds the comparison for q.Sort.
func (q *Query) order() (func(a, b *Row) int, error) {
	known := SortNames()
	for i := range sortDefs {
		if sortDefs[i].name == q.Sort {
			return sortDefs[i].compare, nil
		}
	}
	for _, k := range q.By.Keys {
		if k.Name == q.Sort {
			return keyDefs[defOf(k.Name)].compare, nil
		}
		known = append(known, k.Name)
	}
	if near := suggest.Nearest(q.Sort, known); near != "" {
		return nil, fmt.Errorf("sort by %q: did you mean %s?", q.Sort, near)
	}
	return nil, fmt.Errorf("sort by %q: there are %s", q.Sort, strings.Join(known, ", "))
}

// compare is the whole order of rows. Equal ones stand in an order that does not
// change from call to call.
func (q *Query) compare() func(a, b *Row) int {
	order, err := q.order()
	if err != nil {
		panic("store: " + err.Error()) // Check came before
	}
	return func(a, b *Row) int {
		c := order(a, b)
		if q.Reverse {
			c = -c
		}
		if c != 0 {
			return c
		}
		return compareKeys(a, b)
	}
}

func compareKeys(a, b *Row) int {
	for i := range keyDefs {
		if c := keyDefs[i].compare(a, b); c != 0 {
			return c
		}
	}
	return 0
}
