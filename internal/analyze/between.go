package analyze

import (
	"context"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/verdict"
)

// Bounds of what is compared between hosts.
const (
	mostCompared = 256 // flows, those with the most packets
	newestPart   = time.Minute
)

// between finds what is wrong between hosts, in the range and in its newest part by itself.
func (a *Analyzer) between(ctx context.Context, r api.WhyRequest, since, until, now time.Time) (found []verdict.Verdict, examined []verdict.Matter, err error) {
	end := until
	if end.IsZero() {
		end = now
	}
	if since.IsZero() {
		since = end.Add(-verdict.DefaultRange)
	}
	t := verdict.ThresholdsOf(&a.whole.Why)
	for n, from := range []time.Time{since, end.Add(-newestPart)} {
		if n > 0 && !from.After(since.Add(newestPart)) {
			break
		}
		x, err := a.compare(ctx, r.Filter, from, end)
		if err != nil {
			return nil, nil, err
		}
		if !until.IsZero() {
			x.Past = until.UTC().Format(time.RFC3339)
		}
		list, matters := x.Examine(&t)
		if found = append(found, list...); n == 0 {
			examined = matters
		}
	}
	return found, examined, nil
}

// compare asks all hosts for the largest flows, and finds the ways of these.
func (a *Analyzer) compare(ctx context.Context, text string, since, until time.Time) (*verdict.Across, error) {
	f, err := filter.Parse(text)
	if err != nil {
		return nil, err
	}
	x := comparison{
		Across: verdict.Across{From: since, To: until, Filter: text, Clocks: map[string]verdict.Clock{}, Unequal: map[string]string{}},
		a:      a, facts: a.facts(ctx, since, until), flows: map[flowID]*gathered{}, fragments: map[flowID]bool{},
	}
	chosen, of, err := a.largest(ctx, f, since, until)
	if err != nil || len(chosen) == 0 {
		return &x.Across, err
	}
	x.Known = of
	these, n := only(chosen, filter.MaxText-len(verdict.Both(text, " ")))
	if chosen = chosen[:n]; n == 0 {
		return &x.Across, nil // the filter leaves no space
	}
	if x.plan.Filter, err = filter.Parse(verdict.Both(text, these)); err != nil {
		return nil, err
	}
	x.plan.Since, x.plan.Until, x.plan.Sort, x.plan.Limit, x.plan.Everywhere = since, until, "packets", mostRows, true
	for _, h := range a.agents() {
		if err := x.ask(ctx, h); err != nil {
			return nil, err
		}
	}
	for _, id := range chosen {
		if g := x.flows[id]; g != nil {
			x.add(g)
		}
	}
	return &x.Across, x.sure(ctx)
}

// comparison is what is compared.
type comparison struct {
	verdict.Across
	a         *Analyzer
	plan      query.Plan
	facts     *hops.Facts
	flows     map[flowID]*gathered
	fragments map[flowID]bool // flows whose packets may be cut on their way
	asked     []asked
	ids       []flowID // of Flows
	least     uint64   // packets of a flow at an interface that a host has no row of, at most
}

// asked is a host with records of flows that are compared.
type asked struct {
	host         *host
	since, until time.Time // in the time of other hosts
}

// ask takes what a host counted.
func (x *comparison) ask(ctx context.Context, h *host) error {
	plan := x.plan
	if plan.Since = h.counting(plan.Since, plan.Until); !plan.Until.IsZero() && !plan.Since.Before(plan.Until) {
		return nil
	}
	answer, err := own{h}.Query(ctx, plan)
	if err != nil || len(answer.Rows) == 0 {
		return err
	}
	if err := x.trust(ctx, h, &answer); err != nil {
		return err
	}
	if answer.Groups > len(answer.Rows) {
		x.least = max(x.least, answer.Rows[len(answer.Rows)-1].Packets)
	}
	for i := range answer.Rows {
		if w := &answer.Rows[i]; w.Fragments > 0 {
			x.fragments[idOf(w)] = true
		}
	}
	since, until := inwards(&answer, x.facts.Clock)
	x.asked = append(x.asked, asked{h, since, until})
	return gather(x.flows, h.name, answer.Rows)
}

// add finds the way of a flow.
func (x *comparison) add(g *gathered) {
	if g.points.Most() < 2*x.least {
		return
	}
	path := g.points.Find(x.facts)
	switch {
	case len(path.Parts) == 0 && g.points.Len() < 2:
		return
	case x.fragments[g.id()] || g.points.Mixed() || len(path.Unconfirmed) > 0:
		x.Unclear++
		return
	}
	x.ids = append(x.ids, g.id())
	x.Flows = append(x.Flows, verdict.Crossing{
		Flow: verdict.Flow{Proto: flow.ProtoName(g.Proto), Src: g.Src, SrcPort: g.Sport, Dst: g.Dst, DstPort: g.Dport}, Path: path,
	})
}

// sure finds what was certainly lost. Only where something is missing that one end may not have counted, hosts are asked again.
func (x *comparison) sure(ctx context.Context) error {
	inner, inside := hops.Inner{Windows: map[string]hops.Window{}}, map[flowID]*gathered{}
	if slices.ContainsFunc(x.Flows, func(f verdict.Crossing) bool {
		return slices.ContainsFunc(f.Parts, func(p hops.Part) bool { return p.Lost > 0 && !x.facts.Over(&p) })
	}) {
		for _, one := range x.asked {
			p := x.plan
			if p.Since, p.Until = one.since, one.until; !p.Since.Before(p.Until) {
				continue
			}
			answer, err := own{one.host}.Query(ctx, p)
			if err != nil {
				return err
			}
			inner.Windows[one.host.name] = hops.Window{From: answer.From, To: answer.To}
			if err := gather(inside, one.host.name, answer.Rows); err != nil {
				return err
			}
		}
	}
	for i := range x.Flows {
		f := &x.Flows[i]
		inner.Points = nil
		if short := inside[x.ids[i]]; short != nil {
			inner.Points = &short.points
		}
		for k := range f.Parts {
			f.Lost = append(f.Lost, x.facts.Certain(&f.Parts[k], &inner))
		}
	}
	return nil
}

// inwards is a time that lies in that of other hosts whose intervals are as long, whatever their boundaries are.
func inwards(a *query.Answer, clock time.Duration) (since, until time.Time) {
	by := 2*a.To.Sub(a.From)/time.Duration(max(a.Intervals, 1)) + clock
	return a.From.Add(by), a.To.Add(-by)
}

// trust notes whether counts of a host can be compared with those of others, and what is known of its clock.
func (x *comparison) trust(ctx context.Context, h *host, answer *query.Answer) error {
	why, err := h.incomparable(ctx, answer, x.plan.Since, x.plan.Until)
	if err != nil {
		return err
	}
	h.mu.Lock()
	if b, known := h.clock.bounds(); known {
		x.Clocks[h.name] = b
	}
	h.mu.Unlock()
	if why != "" {
		x.Unequal[h.name] = why
		return nil
	}
	x.a.add(x.facts, h, answer)
	return nil
}
