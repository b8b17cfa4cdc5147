package analyze

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/order"
	"github.com/waymark-net/waymark/internal/query"
)

// Bounds of a question about ways. Beyond them it is refused: a path without some of its points would show loss.
const (
	mostRows  = 4096 // of a host
	mostPaths = 64
)

// clockSpread is how far clocks of hosts may differ, with the time that packets are under way, where no problem is reported.
const clockSpread = 100 * time.Millisecond

type flowID struct {
	proto        uint8
	src, dst     netip.Addr
	sport, dport uint16
}

func idOf(w *query.Row) flowID { return flowID{w.Proto, w.Src, w.Dst, w.SrcPort, w.DstPort} }

// points finds the way of each flow that is meant.
func (a *Analyzer) points(ctx context.Context, r api.WhyRequest) (any, error) {
	since, until, err := r.Range(a.clock())
	if err != nil {
		return nil, err
	}
	if since.IsZero() {
		since = a.clock().Add(-10 * time.Minute)
	}
	f, err := filter.Parse(r.Filter)
	if err != nil {
		return nil, err
	}
	ways, flows := hops.Ways{Flows: []hops.Way{}}, map[flowID]*gathered{}
	facts := a.facts(ctx, since, until)
	for _, h := range a.agents() {
		answer, err := own{h}.Query(ctx, query.Plan{Filter: f, Since: since, Until: until, Limit: mostRows, Everywhere: true})
		switch {
		case err != nil:
			return nil, err
		case answer.Groups > len(answer.Rows):
			return nil, &api.Error{Status: http.StatusBadRequest, What: fmt.Sprintf("the filter means %d flows of %s, and paths are of %d at most", answer.Groups, h.name, mostRows), How: "name addresses and ports"}
		case len(answer.Rows) == 0:
			continue
		}
		a.add(facts, h, &answer)
		text, err := h.incomparable(ctx, &answer, since, until)
		if err != nil {
			return nil, err
		}
		if text != "" {
			ways.Incomplete = append(ways.Incomplete, h.name+": "+text)
		}
		if err := gather(flows, h.name, answer.Rows); err != nil {
			return nil, err
		}
	}
	list := byPackets(flows)
	ways.Others = max(0, len(list)-mostPaths)
	for _, g := range list[:len(list)-ways.Others] {
		g.Path = g.points.Find(facts)
		ways.Flows = append(ways.Flows, g.Way)
	}
	return ways, nil
}

// facts are what orders points, besides records of hosts.
func (a *Analyzer) facts(ctx context.Context, since, until time.Time) *hops.Facts {
	t := a.joined()
	links := linksOf(t)
	e := &expected{a: a, ctx: ctx, plan: query.Plan{Since: since, Until: until, Everywhere: true, Sort: "packets", Sums: []string{"packets"}}, topology: t, linked: map[[2]hops.End]bool{}, counting: map[string]map[hops.End]bool{}}
	for _, l := range links {
		e.linked[[2]hops.End{l.A, l.B}], e.linked[[2]hops.End{l.B, l.A}] = true, true
	}
	e.facts = &hops.Facts{Links: links, Named: t.Node, Expected: e.next, Windows: map[string]hops.Window{}, Clock: clockSpread}
	return e.facts
}

// add takes in the records of a host.
func (a *Analyzer) add(facts *hops.Facts, h *host, answer *query.Answer) {
	facts.Windows[h.name] = hops.Window{From: answer.From, To: answer.To}
	h.mu.Lock()
	facts.Clock = max(facts.Clock, clockSpread+h.state.ClockOffset.Abs())
	h.mu.Unlock()
}

// byPackets are flows, those with the most packets first.
func byPackets(flows map[flowID]*gathered) []*gathered {
	list := make([]*gathered, 0, len(flows))
	for _, g := range flows {
		list = append(list, g)
	}
	order.By(list, func(x, y *gathered) int {
		return cmp.Or(cmp.Compare(y.packets, x.packets), x.Src.Compare(y.Src), x.Dst.Compare(y.Dst), cmp.Compare(x.Sport, y.Sport), cmp.Compare(x.Dport, y.Dport), cmp.Compare(x.Proto, y.Proto))
	})
	return list
}

// gathered are the points of a flow.
type gathered struct {
	hops.Way
	points  hops.Points
	packets uint64
}

func (g *gathered) id() flowID { return flowID{g.Proto, g.Src, g.Dst, g.Sport, g.Dport} }

func gather(flows map[flowID]*gathered, host string, rows []query.Row) error {
	for i := range rows {
		w := &rows[i]
		if w.Unattributed {
			continue
		}
		id := idOf(w)
		g := flows[id]
		if g == nil {
			g = &gathered{Way: hops.Way{Proto: w.Proto, Src: w.Src, Sport: w.SrcPort, Dst: w.Dst, Dport: w.DstPort}}
			flows[id] = g
		}
		g.packets += w.Packets
		if err := g.points.Add(host, &w.Record); err != nil {
			return err
		}
	}
	return nil
}

// missing says why an answer has not all records of its time.
func missing(a *query.Answer) string {
	switch {
	case a.Partial != "":
		return a.Partial
	case a.Lost > 0:
		return fmt.Sprintf("%d intervals could not be kept or read", a.Lost)
	case a.Summed > 0:
		return fmt.Sprintf("%d records were too many to keep, and are in no flow", a.Summed)
	}
	return ""
}
