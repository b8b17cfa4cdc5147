package hops

import (
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/order"
)

// trace notes the ids of nodes that packets passed, as IOAM has them. A flow with several ways is in no order.
func (p *Points) trace(r *flow.Record) {
	if r.IOAM == nil || r.IOAM.Nodes == "" {
		return
	}
	if p.nodes == "" {
		p.nodes = r.IOAM.Nodes
	}
	p.ways = p.ways || p.nodes != r.IOAM.Nodes
}

// traced orders hosts as a trace of the flow has them, if it has all of them, once.
func (f *finder) traced(through []Node) bool {
	if f.facts.Named == nil || f.nodes == "" {
		return false
	}
	at := map[string]int{}
	for i, id := range strings.Split(f.nodes, "-") {
		host := f.facts.Named(id)
		if _, again := at[host]; again && host != "" {
			return false
		}
		at[host] = i + 1
	}
	for i, n := range through {
		if at[n.Host] == 0 || slices.ContainsFunc(through[:i], func(o Node) bool { return o.Host == n.Host }) {
			return false
		}
	}
	order.By(through, func(a, b Node) int { return at[a.Host] - at[b.Host] })
	return true
}
