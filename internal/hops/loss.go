package hops

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// emit appends links in the order in which packets pass them, and behind each the hosts that they come to.
func (f *finder) emit(parts []Part) {
	for len(parts) > 0 {
		// Links from hosts that packets still have to come to, over another one of these links, wait.
		next := slices.IndexFunc(parts, func(p Part) bool {
			return !slices.ContainsFunc(parts, func(o Part) bool {
				return slices.ContainsFunc(o.To, func(to Point) bool { return len(ofNode(p.From, to.Node)) > 0 })
			})
		})
		if next < 0 {
			f.doubt("links of one hop limit are a loop")
			next = 0
		}
		p := parts[next]
		parts = slices.Delete(parts, next, next+1)
		if p.Kind = OnLink; len(p.From) > 0 {
			f.compare(&p)
			f.path.Parts = append(f.path.Parts, p)
		}
		for _, n := range nodes(p.To) {
			f.cross(n)
		}
	}
}

// cross appends what a host did with the packets.
func (f *finder) cross(n Node) {
	in, out := ofNode(f.in, n), ofNode(f.out, n)
	if f.crossed[n] || len(in) == 0 || len(out) == 0 {
		return
	}
	f.crossed[n] = true
	p := Part{Kind: InHost, From: in, To: out}
	f.compare(&p)
	f.path.Parts = append(f.path.Parts, p)
}

// compare counts what is missing.
func (f *finder) compare(p *Part) {
	p.Sent, p.Received = packets(p.From), packets(p.To)
	switch {
	case p.Sent >= p.Received:
		p.Lost = p.Sent - p.Received
	default:
		p.Gained = p.Received - p.Sent
	}
	if p.Kind == InHost {
		for i := range p.From {
			p.Dropped += p.From[i].Dropped
		}
		p.Dropped = min(p.Dropped, p.Lost)
	}
	p.Margin = f.margin(p)
	if before, after := fragments(p.From), fragments(p.To); after > before && p.Received > p.Sent {
		f.path.Notes = append(f.path.Notes, fmt.Sprintf("between %s and %s, packets are cut into fragments: what is lost there is not known from counts", &p.From[0], &p.To[0]))
	}
}

func fragments(points []Point) (n uint64) {
	for i := range points {
		n += points[i].Fragments
	}
	return n
}

// margin is Part.Margin.
func (f *finder) margin(p *Part) uint64 {
	var all []Window
	from, to := time.Time{}, time.Time{}
	for _, points := range [][]Point{p.From, p.To} {
		for i := range points {
			if w, ok := f.facts.Windows[points[i].Host]; ok {
				all = append(all, w)
			}
			if from.IsZero() || points[i].First.Before(from) {
				from = points[i].First
			}
			if points[i].Last.After(to) {
				to = points[i].Last
			}
		}
	}
	if len(all) == 0 {
		return 0
	}
	clock := f.facts.Clock
	if p.Kind == InHost { // of one clock; both directions are counted over the same intervals
		clock = 0
	}
	begin := slices.MinFunc(all, func(a, b Window) int { return a.From.Compare(b.From) }).From
	began := slices.MaxFunc(all, func(a, b Window) int { return a.From.Compare(b.From) }).From
	end := slices.MinFunc(all, func(a, b Window) int { return a.To.Compare(b.To) }).To
	ended := slices.MaxFunc(all, func(a, b Window) int { return a.To.Compare(b.To) }).To
	var open time.Duration
	if !from.After(began.Add(clock)) {
		open += began.Sub(begin) + clock
	}
	if !to.Before(end.Add(-clock)) {
		open += ended.Sub(end) + clock
	}
	if open <= 0 {
		return 0
	}
	most := max(p.Sent, p.Received)
	lasted := max(to.Sub(from), time.Millisecond)
	return min(most, uint64(math.Ceil(float64(most)*open.Seconds()/lasted.Seconds())))
}

// ends says where the path begins and ends.
func (f *finder) ends() {
	if len(f.in)+len(f.out) == 0 {
		return
	}
	began, unsure := f.begins()
	if unsure {
		f.doubt("several hosts may be the first ones that packets pass: it is the one that saw them first")
	}
	if !began {
		f.path.Notes = append(f.path.Notes, "the flow comes from a host without an agent, or its addresses were translated before: it is not followed further back")
	}
	for _, p := range f.pending {
		if f.missing(&p) {
			continue
		}
		f.path.Notes = append(f.path.Notes, fmt.Sprintf("%d packets that left at %s were not seen again: they go to a host without an agent, or are translated: they are not followed", p.Packets, &p))
	}
}

// begins reports whether packets begin at a host with an agent, and whether counts or clocks had to decide where.
func (f *finder) begins() (began, unsure bool) {
	all := nodes(slices.Concat(f.out, f.in))
	seen := make([]Sight, len(all))
	for i, n := range all {
		for _, p := range ofNode(f.out, n) {
			seen[i].Out.Add(p.TTLMax, p.Packets, p.First.UnixNano())
		}
		for _, p := range ofNode(f.in, n) {
			seen[i].In.Add(p.TTLMax, p.Packets, p.First.UnixNano())
		}
	}
	sources, unsure := Sources(seen, f.copies)
	return slices.ContainsFunc(sources, func(i int) bool {
		return !seen[i].In.at(seen[i].Out.TTL) && seen[i].Out.Seen && seen[i].Out.TTL >= seen[i].In.TTL
	}), unsure
}
