package store

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/suggest"
)

// sortDefs are what rows can be sorted by besides their keys; the largest first.
// A rank takes time, and is computed once for each row.
var sortDefs = []sortDef{
	{name: "bytes", compare: func(a, b *Row) int { return cmp.Compare(b.Bytes, a.Bytes) }},
	{name: "packets", compare: func(a, b *Row) int { return cmp.Compare(b.Packets, a.Packets) }},
	{name: "wire_bytes", compare: func(a, b *Row) int { return cmp.Compare(b.WireBytes, a.WireBytes) }},
	{name: "payload_bytes", compare: func(a, b *Row) int { return cmp.Compare(b.PayloadBytes, a.PayloadBytes) }},
	{name: "records", compare: func(a, b *Row) int { return cmp.Compare(b.Records, a.Records) }},
	{name: "rate", compare: func(a, b *Row) int { return cmp.Compare(b.Rate(), a.Rate()) }},
	{name: "rtt", compare: func(a, b *Row) int { return cmp.Compare(b.RTT.Handshake(), a.RTT.Handshake()) }},
	{name: "first", compare: func(a, b *Row) int { return b.First.Compare(a.First) }},
	{name: "last", compare: func(a, b *Row) int { return b.Last.Compare(a.Last) }},
	ranked("delay", func(p *flow.PDM) int64 { return int64(p.Server.Quantile(0.5) + p.Network.Quantile(0.5)) }),
	ranked("server", server(0.5)),
	ranked("server_p99", server(0.99)),
	ranked("network", network(0.5)),
	ranked("network_p99", network(0.99)),
	ranked("delays", func(p *flow.PDM) int64 { return int64(max(p.Server.Count, p.Network.Count)) }),
	ranked("lost", func(p *flow.PDM) int64 { return p.Lost }),
	ranked("reordered", func(p *flow.PDM) int64 { return int64(p.Reordered) }),
	ranked("duplicates", func(p *flow.PDM) int64 { return int64(p.Duplicates) }),
	ranked("suspicious", func(p *flow.PDM) int64 { return int64(p.Suspicious) }),
}

// sortDef is one of them.
type sortDef struct {
	name    string
	compare func(a, b *Row) int
	rank    func(*Row) int64
}

// ranked sorts by something of PDM; rows without it come last.
func ranked(name string, of func(*flow.PDM) int64) sortDef {
	return sortDef{
		name:    name,
		compare: func(a, b *Row) int { return cmp.Compare(b.rank, a.rank) },
		rank: func(w *Row) int64 {
			if w.PDM == nil {
				return math.MinInt64
			}
			return of(w.PDM)
		},
	}
}

func server(q float64) func(*flow.PDM) int64 {
	return func(p *flow.PDM) int64 { return int64(p.Server.Quantile(q)) }
}

func network(q float64) func(*flow.PDM) int64 {
	return func(p *flow.PDM) int64 { return int64(p.Network.Quantile(q)) }
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
func (q *Query) order() (sortDef, error) {
	known := SortNames()
	for i := range sortDefs {
		if sortDefs[i].name == q.Sort {
			return sortDefs[i], nil
		}
	}
	for _, k := range q.By.Keys {
		if k.Name == q.Sort {
			return sortDef{name: k.Name, compare: keyDefs[defOf(k.Name)].compare}, nil
		}
		known = append(known, k.Name)
	}
	if near := suggest.Nearest(q.Sort, known); near != "" {
		return sortDef{}, fmt.Errorf("sort by %q: did you mean %s?", q.Sort, near)
	}
	return sortDef{}, fmt.Errorf("sort by %q: there are %s", q.Sort, strings.Join(known, ", "))
}

// compare is the whole order of rows, once rank, unless nil, was asked of each.
// Equal ones stand in an order that does not
// change from call to call.
func (q *Query) compare() (rank func(*Row) int64, compare func(a, b *Row) int) {
	order, err := q.order()
	if err != nil {
		panic("store: " + err.Error()) // Check came before
	}
	return order.rank, func(a, b *Row) int {
		c := order.compare(a, b)
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
