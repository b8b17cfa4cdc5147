package analyze

import (
	"context"
	"net/netip"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/topology/joined"
)

// expected knows where packets should come in that nobody saw.
type expected struct {
	a        *Analyzer
	ctx      context.Context
	plan     query.Plan
	topology *joined.Topology
	facts    *hops.Facts
	linked   map[[2]hops.End]bool
	counting map[string]map[hops.End]bool // by host, where it counted packets that arrived
}

// next implements hops.Facts.Expected: the host that has the destination is on the link, and counts what arrives there.
func (e *expected) next(from hops.End, dst netip.Addr) (hops.End, bool) {
	owner, known := e.topology.Owner(dst)
	if !known {
		return hops.End{}, false
	}
	to := endOf(owner)
	return to, e.linked[[2]hops.End{from, to}] && e.counts(to)
}

// counts reports whether a host counts what arrives at an interface.
func (e *expected) counts(at hops.End) bool {
	seen, asked := e.counting[at.Host]
	if !asked {
		seen = map[hops.End]bool{}
		for _, h := range e.a.agents() {
			if h.name == at.Host {
				e.ask(h, seen)
			}
		}
		e.counting[at.Host] = seen
	}
	return seen[at]
}

func (e *expected) ask(h *host, seen map[hops.End]bool) {
	by, err := query.ParseBy("netns,iface,direction")
	if err != nil {
		return
	}
	p := e.plan
	if p.Since = h.counting(p.Since, p.Until); !p.Until.IsZero() && !p.Since.Before(p.Until) {
		return
	}
	p.By = by
	answer, err := own{h}.Query(e.ctx, p)
	if err != nil {
		return
	}
	if why, err := h.incomparable(e.ctx, &answer, p.Since, p.Until); err != nil || why != "" {
		return // nothing is expected of a host whose counts mean something else
	}
	if _, known := e.facts.Windows[h.name]; !known {
		e.a.add(e.facts, h, &answer)
	}
	for i := range answer.Rows {
		if w := &answer.Rows[i]; w.Direction == flow.Ingress && w.Packets > 0 {
			seen[hops.End{Node: hops.Node{Host: h.name, Netns: w.Netns}, Iface: w.Iface}] = true
		}
	}
}
