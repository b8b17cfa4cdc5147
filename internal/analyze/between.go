package analyze

import (
	"context"
	"fmt"
	"net/netip"
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
	mostCompared = 2048    // flows, those with the most packets
	sumOfRows    = 1 << 16 // of all hosts together
	leastOfRows  = 64      // of each host, though that may be more together
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

// compare asks all hosts for their largest flows, and finds the ways of these.
func (a *Analyzer) compare(ctx context.Context, text string, since, until time.Time) (*verdict.Across, error) {
	f, err := filter.Parse(text)
	if err != nil {
		return nil, err
	}
	x := comparison{Across: verdict.Across{From: since, To: until, Filter: text, Clocks: map[string]verdict.Clock{}, Unequal: map[string]string{}}}
	hosts := a.all()
	limit := max(leastOfRows, min(mostRows, sumOfRows/max(len(hosts), 1)))
	flows, facts := map[flowID]*gathered{}, a.facts(ctx, since, until)
	inside, inner := map[flowID]*gathered{}, hops.Inner{Windows: map[string]hops.Window{}}
	unequal, least := map[flowID]bool{}, uint64(0)
	for _, h := range hosts {
		plan := query.Plan{Filter: f, Since: since, Until: until, Sort: "packets", Limit: limit, Everywhere: true}
		answer, err := own{h}.Query(ctx, plan)
		if err != nil {
			return nil, err
		}
		if len(answer.Rows) == 0 {
			continue
		}
		if x.take(h, &answer); x.Unequal[h.name] == "" {
			a.add(facts, h, &answer)
		}
		if answer.Groups > len(answer.Rows) { // a flow of which it has no row may have as many packets there
			least = max(least, answer.Rows[len(answer.Rows)-1].Packets)
		}
		for i := range answer.Rows {
			if w := &answer.Rows[i]; !comparable(w) {
				unequal[idOf(w)] = true
			}
		}
		if err := gather(flows, h.name, answer.Rows); err != nil {
			return nil, err
		}
		if plan.Since, plan.Until = inwards(&answer, facts.Clock); !plan.Since.Before(plan.Until) {
			continue
		}
		if answer, err = (own{h}).Query(ctx, plan); err != nil {
			return nil, err
		}
		inner.Windows[h.name] = hops.Window{From: answer.From, To: answer.To}
		if err := gather(inside, h.name, answer.Rows); err != nil {
			return nil, err
		}
	}
	list := byPackets(flows)
	for _, g := range list {
		id := flowID{g.Proto, g.Src, g.Dst, g.Sport, g.Dport}
		several := g.points.Len() > 1
		if several {
			x.Known++
		}
		if g.points.Most() < 2*least || len(x.Flows) == mostCompared {
			continue
		}
		path := g.points.Find(facts)
		switch {
		case len(path.Parts) == 0:
			continue
		case !several: // all of it was lost on a link
			x.Known++
		}
		if unequal[id] || g.points.Mixed() || len(path.Unconfirmed) > 0 {
			x.Unclear++
			continue
		}
		one := verdict.Crossing{
			Flow: verdict.Flow{Proto: flow.ProtoName(g.Proto), Src: g.Src, SrcPort: g.Sport, Dst: g.Dst, DstPort: g.Dport}, Path: path,
		}
		inner.Points = nil
		if short := inside[id]; short != nil {
			inner.Points = &short.points
		}
		for i := range path.Parts {
			one.Lost = append(one.Lost, facts.Certain(&path.Parts[i], &inner))
		}
		x.Flows = append(x.Flows, one)
	}
	return &x.Across, nil
}

// inwards is a time that lies in that of other hosts whose intervals are as long, whatever their boundaries are.
func inwards(a *query.Answer, clock time.Duration) (since, until time.Time) {
	by := 2*a.To.Sub(a.From)/time.Duration(max(a.Intervals, 1)) + clock
	return a.From.Add(by), a.To.Add(-by)
}

// comparison is what is compared.
type comparison struct{ verdict.Across }

// take notes whether counts of a host can be compared with those of others, and what is known of its clock.
func (x *comparison) take(h *host, answer *query.Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b, known := h.clock.bounds(); known {
		x.Clocks[h.name] = b
	}
	why := missing(answer)
	switch off := h.state.ClockOffset; {
	case h.state.Sampling > 1:
		why = fmt.Sprintf("one packet in %d is counted, at each interface another one", h.state.Sampling)
	case off.Abs() > farClock:
		why = fmt.Sprintf("its clock is %v off", off.Round(time.Second))
	}
	for i := range answer.Rows {
		if answer.Rows[i].Unattributed && answer.Rows[i].Packets > 0 {
			why = "some packets are in no flow"
		}
	}
	if why != "" {
		x.Unequal[h.name] = why
	}
}

// comparable reports whether counts of a flow mean the same at each host: fragments and copies do not.
func comparable(w *query.Row) bool {
	b := w.Dst.As16()
	return w.Fragments == 0 && w.Dst.IsValid() && !w.Dst.IsMulticast() && w.Dst != netip.IPv4Unspecified() && !(w.Dst.Is4() && b[12] == 255)
}
