package verdict

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/order"
	"github.com/waymark-net/waymark/internal/term"
)

// Across is what several hosts counted of the same flows in a time, to say what is wrong between them.
type Across struct {
	From, To time.Time
	Flows    []Crossing
	Known    int    // flows that there are
	Unclear  int    // flows whose order or counts mean nothing: NAT, fragments, hop limits that differ
	Past     string // the end of the range, for commands; empty: now
	Filter   string
	Clocks   map[string]Clock // by host
	Unequal  map[string]string
}

// Crossing is a flow and its path.
type Crossing struct {
	Flow
	hops.Path
	Lost []uint64 // certainly, by part of the path
}

// Clock is by how much that of a host is ahead, at least and at most.
type Clock struct{ Least, Most time.Duration }

// Examine finds links between hosts, and hosts that forward, which lose or delay packets.
func (x *Across) Examine(t *Thresholds) (found []Verdict, examined []Matter) {
	all := x.hops()
	loss, delay := finding{}, finding{}
	for _, h := range sortedHops(all) {
		loss.count++
		x.judgeLoss(&loss, h, t)
		x.judgeDelay(&delay, h, all[h.reverse()], t)
	}
	if hosts := x.unequal(); hosts != "" {
		loss.note("not compared: %s", hosts)
	}
	what := fmt.Sprintf("links and hosts that %d flows pass, the largest of %d", len(x.Flows), x.Known)
	if x.Unclear > 0 {
		what += fmt.Sprintf("; of %d the order or the counts mean nothing", x.Unclear)
	}
	for kind, f := range map[Kind]*finding{PathLoss: &loss, PathDelay: &delay} {
		for _, v := range f.verdicts {
			v.Kind = kind
			v.From, v.To = x.From, x.To
			v.Score = ruleOf(kind).score(&v)
			v.Severity = severityOf(v.Score)
			v.Text += fmt.Sprintf(", from %s to %s", x.From.Local().Format(time.TimeOnly), x.To.Local().Format(time.TimeOnly))
			found = append(found, v)
		}
		examined = append(examined, Matter{Kind: kind, Count: f.count, What: what, Note: f.text})
	}
	order.By(examined, func(a, b Matter) int { return rankOf(a.Kind) - rankOf(b.Kind) })
	return found, examined
}

func (x *Across) unequal() string {
	var list []string
	for host, why := range x.Unequal {
		list = append(list, host+": "+why)
	}
	order.By(list, strings.Compare)
	return strings.Join(list, "; ")
}

// hop is a part of paths: a link between hosts, or a host that forwards.
type hop struct {
	part    hops.Part // of the largest flow
	sent    uint64
	lost    uint64 // certainly
	within  uint64 // missing, but they may have been counted at one end only
	dropped uint64 // by the gate
	flows   int
	losing  int
	late    []time.Duration // between the first packets at both ends, by the clocks there
	flow    Flow
	hosts   map[netip.Addr]bool
	losers  map[netip.Addr]bool
}

// ends names points, and hop a part of a path, by places alone.
func ends(points []hops.Point) string {
	var list []string
	for i := range points {
		list = append(list, points[i].String())
	}
	order.By(list, strings.Compare)
	return strings.Join(list, " and ")
}

func (h *hop) id() string {
	return string(h.part.Kind) + " " + ends(h.part.From) + " > " + ends(h.part.To)
}

func (h *hop) reverse() string {
	return string(h.part.Kind) + " " + ends(h.part.To) + " > " + ends(h.part.From)
}

func sortedHops(all map[string]*hop) (list []*hop) {
	for _, h := range all {
		list = append(list, h)
	}
	order.By(list, func(a, b *hop) int { return strings.Compare(a.id(), b.id()) })
	return list
}

// hops adds up flows by the parts that they have in common.
func (x *Across) hops() map[string]*hop {
	all := map[string]*hop{}
	for i := range x.Flows {
		f := &x.Flows[i]
		for k := range f.Parts {
			p := &f.Parts[k]
			if len(p.From) == 0 || len(p.To) == 0 || x.excludes(p.From) || x.excludes(p.To) {
				continue
			}
			one := &hop{part: *p, hosts: map[netip.Addr]bool{}, losers: map[netip.Addr]bool{}}
			if known := all[one.id()]; known != nil {
				one = known
			} else {
				all[one.id()] = one
			}
			one.add(p, &f.Flow, f.Lost[k])
		}
	}
	return all
}

func (x *Across) excludes(points []hops.Point) bool {
	for i := range points {
		if x.Unequal[points[i].Host] != "" {
			return true
		}
	}
	return false
}

func (h *hop) add(p *hops.Part, f *Flow, certain uint64) {
	h.flows++
	h.hosts[f.Src], h.hosts[f.Dst] = true, true
	if p.Sent >= h.part.Sent {
		h.part, h.flow = *p, *f
	}
	h.sent += p.Sent
	h.dropped += p.Dropped
	lost := p.Lost - p.Dropped
	certain = min(lost, certain)
	h.lost, h.within = h.lost+certain, h.within+lost-certain
	if certain > 0 {
		h.losing++
		h.losers[f.Src], h.losers[f.Dst] = true, true
	}
	// A flow of which both ends counted all packets began with the same one.
	if len(p.From) == 1 && len(p.To) == 1 && p.Margin == 0 && p.Lost == 0 && p.Gained == 0 {
		h.late = append(h.late, p.To[0].First.Sub(p.From[0].First))
	}
}

func (h *hop) inside() bool { return h.part.Kind == hops.InHost }

// name begins a sentence.
func (h *hop) name() string {
	if h.inside() {
		return fmt.Sprintf("The host %s, between %s and %s,", h.part.From[0].Node, ifaces(h.part.From), ifaces(h.part.To))
	}
	return fmt.Sprintf("The link from %s to %s", ends(h.part.From), ends(h.part.To))
}

func ifaces(points []hops.Point) string {
	var list []string
	for i := range points {
		list = append(list, points[i].Iface)
	}
	return strings.Join(list, " and ")
}

func (h *hop) where() Where {
	from, to := &h.part.From[0], &h.part.To[0]
	return Where{
		Host: from.Host, Netns: from.Netns, Iface: from.Iface, Direction: from.Direction.String(),
		ToHost: to.Host, ToNetns: to.Netns, ToIface: to.Iface,
	}
}

func (h *hop) evidence() (list []string) {
	if n := h.part.Hidden; n > 0 {
		list = append(list, fmt.Sprintf("%s without an agent %s on it", term.Number(uint64(n), "routers"), areIs(n)))
	}
	if h.dropped > 0 {
		list = append(list, fmt.Sprintf("%s that rules of the gate dropped there are not among them", term.Number(h.dropped, "packets")))
	}
	return list
}

func areIs(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func (x *Across) judgeLoss(f *finding, h *hop, t *Thresholds) {
	if h.lost < leastLost || float64(h.lost) < t.PathLoss*float64(h.sent) {
		return
	}
	share := float64(h.lost) / float64(h.sent)
	count, least := term.Number(h.lost, "packets"), ""
	if h.within > 0 {
		least = "at least "
		count += fmt.Sprintf(", and %s that one end may not have counted", term.Count(h.within))
	}
	flow := h.flow
	f.add(Verdict{
		Text: fmt.Sprintf("%s loses %s%s of %s of %s (%s); threshold %s", h.name(), least, term.Percent(share),
			term.Number(h.sent, "packets"), term.Number(uint64(h.flows), "flows"), count, term.Percent(t.PathLoss)),
		Measure: "share of packets that are not seen at the next interface", Unit: "share", Value: share, Threshold: t.PathLoss, Samples: h.sent,
		Where: h.where(), Flow: &flow, Command: x.command(h),
		Evidence: append([]string{fmt.Sprintf("%s of the flows lose packets", term.Count(uint64(h.losing)))}, h.evidence()...),
		scope:    scope{id: "loss " + h.id(), addresses: h.losers, located: true, between: true, lost: h.lost},
	})
}

// judgeDelay compares the times of first packets. Between hosts, clocks differ: by how much, the analyzer knows within bounds; and
// what packets of both directions take together does not depend on it.
func (x *Across) judgeDelay(f *finding, h, back *hop, t *Thresholds) {
	if len(h.late) < leastFlows {
		return
	}
	f.count++
	late := median(h.late)
	least, most := late, late
	if !h.inside() {
		least, most = x.bounds(h, late)
	}
	by := fmt.Sprintf("by the first packets of %s", term.Number(uint64(len(h.late)), "flows"))
	v := Verdict{
		Measure: "median delay of the hop", Unit: "s", Threshold: t.PathDelay.Seconds(), Samples: uint64(len(h.late)),
		Where: h.where(), Command: x.command(h), Evidence: h.evidence(), scope: scope{id: "delay " + h.id(), addresses: h.hosts, located: true, between: true},
	}
	flow := h.flow
	v.Flow = &flow
	if !h.inside() && back != nil && len(back.late) >= leastFlows {
		both := late + median(back.late)
		backLeast, _ := x.bounds(back, median(back.late))
		if half := both / 2; half >= t.PathDelay && half > max(least, backLeast) {
			if h.id() < back.id() { // the other direction says the same
				v.Value, v.Samples = half.Seconds(), v.Samples+uint64(len(back.late))
				v.Text = fmt.Sprintf("The link between %s and %s delays packets of one direction by at least %s: %s there and back, by the first packets of %s, whatever the clocks of both hosts are; threshold %s",
					ends(h.part.From), ends(h.part.To), term.Duration(half), term.Duration(both), term.Number(v.Samples, "flows"), term.Duration(t.PathDelay))
				f.add(v)
			}
			return
		}
		most = min(most, both)
	}
	switch {
	case least >= t.PathDelay:
		v.Value = least.Seconds()
		v.Text = fmt.Sprintf("%s delays packets by %s, %s; threshold %s", h.name(), between(least, most), by, term.Duration(t.PathDelay))
		f.add(v)
	case most >= t.PathDelay && (back == nil || len(back.late) < leastFlows):
		known := fmt.Sprintf("first packets take up to %s, by clocks that may differ so much", term.Duration(most))
		if most > unknownClock/2 {
			known = "clocks are not known well enough"
		}
		f.note("on the link from %s to %s, %s: there is no verdict without flows of both directions", ends(h.part.From), ends(h.part.To), known)
	}
}

// bounds are the least and the most that a time between two hosts was.
func (x *Across) bounds(h *hop, late time.Duration) (least, most time.Duration) {
	from, to := x.clock(h.part.From[0].Host), x.clock(h.part.To[0].Host)
	return late - (to.Most - from.Least), late - (to.Least - from.Most)
}

// unknownClock is how far one may be off of which nothing is known.
const unknownClock = time.Hour

func (x *Across) clock(host string) Clock {
	if c, known := x.Clocks[host]; known {
		return c
	}
	return Clock{-unknownClock, unknownClock}
}

func between(least, most time.Duration) string {
	if least == most {
		return term.Duration(least)
	}
	return fmt.Sprintf("%s to %s", term.Duration(least), term.Duration(most))
}

// command shows what hosts counted of the largest flow.
func (x *Across) command(h *hop) string {
	filter := h.flow.filter()
	if x.Filter != "" {
		filter = Both(x.Filter, filter)
	}
	text := "waymark points '" + filter + "' --since " + x.From.UTC().Format(time.RFC3339)
	if x.Past != "" {
		text += " --until " + x.Past
	}
	return text
}
