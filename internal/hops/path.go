package hops

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/order"
)

// Kind says what a part of a path is.
type Kind string

const (
	OnLink Kind = "link" // from where packets leave hosts to where they come in at the next ones
	InHost Kind = "host" // from where they come in at a host to where they leave it
)

// Part is a part of a path. Several points of one side are parallel: packets of the flow are divided between them.
type Part struct {
	Kind Kind    `json:"kind"`
	From []Point `json:"from"`
	To   []Point `json:"to"`

	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
	Lost     uint64 `json:"lost"`              // packets that are missing at the end
	Gained   uint64 `json:"gained,omitempty"`  // packets that came in at no point of the begin: duplicates, or a way without an agent
	Dropped  uint64 `json:"dropped,omitempty"` // of Lost, those that rules of the gate dropped
	// Margin is how many packets Lost or Gained may be off: those that passed while one host was counting and the other one
	// was not, at their mean rate. 0: the flow began and ended while both counted.
	Margin uint64 `json:"margin"`
	// Hidden is how many routers without an agent are between both ends.
	Hidden int `json:"hidden_routers,omitempty"`
}

// Significant reports whether packets were certainly lost.
func (p *Part) Significant() bool { return p.Lost > p.Margin }

// Path is the way of a flow.
type Path struct {
	Parts []Part `json:"parts"`
	// Unconfirmed are the reasons why the order may be another one; none: hop limits, directions and links say it.
	Unconfirmed []string `json:"unconfirmed,omitempty"`
	// Notes say where the path begins and ends, as far as there are agents.
	Notes []string `json:"notes,omitempty"`
}

// Find orders the points.
func (p *Points) Find(facts *Facts) Path {
	f := finder{facts: facts, crossed: map[Node]bool{}, copies: Copies(p.of.Dst), to: p.of.Dst, links: p.near(facts.Links)}
	if !p.ways {
		f.nodes = p.nodes
	}
	for _, one := range p.list() {
		if one.TTLMax == 0 && len(f.path.Unconfirmed) == 0 {
			f.doubt("no hop limit was recorded at %s", &one)
		}
		if one.Direction == flow.Ingress {
			f.in = append(f.in, one)
		} else {
			f.out = append(f.out, one)
		}
	}
	f.out = f.distinct(f.out, f.in)
	f.in = f.distinct(f.in, f.out)
	f.walk()
	f.ends()
	return f.path
}

type finder struct {
	facts   *Facts
	to      netip.Addr
	links   []Link // that begin or end at a point
	nodes   string // of its IOAM traces; empty: none, or they differ
	in, out []Point
	copies  bool // packets may come to several hosts
	crossed map[Node]bool
	pending []Point // that left a host, and were not seen since
	path    Path
}

func (f *finder) doubt(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(f.path.Unconfirmed, text) {
		f.path.Unconfirmed = append(f.path.Unconfirmed, text)
	}
}

// walk goes down the hop limits.
func (f *finder) walk() {
	for level := 255; level >= 0; level-- {
		out, in := atLevel(f.out, level), atLevel(f.in, level)
		if len(out)+len(in) > 0 {
			f.level(level, out, in)
		}
	}
}

func atLevel(points []Point, level int) (list []Point) {
	for _, p := range points {
		if int(p.TTLMax) == level {
			list = append(list, p)
		}
	}
	return list
}

func nodes(points []Point) (list []Node) {
	for i := range points {
		if !slices.Contains(list, points[i].Node) {
			list = append(list, points[i].Node)
		}
	}
	return list
}

// level takes the links that packets pass with one hop limit: those that are known, and what is left of the points.
func (f *finder) level(level int, out, in []Point) {
	var parts []Part
	for _, g := range f.linked(out, in) {
		if len(g.From) > 0 && len(g.To) > 0 {
			parts = append(parts, g)
			out, in = without(out, g.From), without(in, g.To)
		}
	}
	parts = append(parts, f.unlinked(level, out, in)...)
	f.emit(parts)
}

func without(points, those []Point) []Point {
	return slices.DeleteFunc(slices.Clone(points), func(p Point) bool {
		return slices.ContainsFunc(those, func(o Point) bool { return comparePoints(p, o) == 0 })
	})
}

// linked groups points by known links.
func (f *finder) linked(out, in []Point) (groups []Part) {
	for _, l := range f.links {
		var g Part
		for _, ends := range [][2]End{{l.A, l.B}, {l.B, l.A}} {
			g.From = append(g.From, at(out, ends[0])...)
			g.To = append(g.To, at(in, ends[1])...)
		}
		if len(g.From) == 0 || len(g.To) == 0 {
			continue
		}
		groups = slices.DeleteFunc(groups, func(o Part) bool {
			if len(without(o.From, g.From)) == len(o.From) && len(without(o.To, g.To)) == len(o.To) {
				return false
			}
			g.From, g.To = append(without(o.From, g.From), g.From...), append(without(o.To, g.To), g.To...)
			return true
		})
		groups = append(groups, g)
	}
	return groups
}

func at(points []Point, e End) (list []Point) {
	for i := range points {
		p := &points[i]
		if p.Node == e.Node && p.Iface == e.Iface {
			list = append(list, *p)
		}
	}
	return list
}

// unlinked orders points of one hop limit whose links are not known: hosts where packets only leave come first, those where
// they come in and leave with the same hop limit, as at bridges and below tunnels, follow, and hosts where they only come in
// are last.
func (f *finder) unlinked(level int, out, in []Point) (parts []Part) {
	var through []Node
	for _, n := range nodes(out) {
		if len(ofNode(in, n)) > 0 {
			through = append(through, n)
		}
	}
	from := slices.DeleteFunc(slices.Clone(out), func(p Point) bool { return slices.Contains(through, p.Node) })
	hidden := 0
	if len(from) == 0 && len(in) > 0 && len(f.pending) > 0 {
		hidden = max(0, int(f.pending[0].TTLMax)-level)
		from, f.pending = f.pending, nil
	}
	for _, group := range f.order(level, through, in, out, from) {
		var to, next []Point
		for _, n := range group {
			to, next = append(to, ofNode(in, n)...), append(next, ofNode(out, n)...)
		}
		parts = append(parts, Part{From: from, To: to, Hidden: hidden})
		from, hidden = next, 0
	}
	to := slices.DeleteFunc(slices.Clone(in), func(p Point) bool { return slices.Contains(through, p.Node) })
	switch {
	case len(to) > 0:
		parts = append(parts, Part{From: from, To: to, Hidden: hidden})
	default:
		f.pending = append(f.pending, from...)
	}
	return parts
}

// order puts nodes that packets cross with one hop limit one behind the other, or next to each other where their counts
// together are what came.
func (f *finder) order(level int, through []Node, in, out, from []Point) (groups [][]Node) {
	if len(through) < 2 {
		for _, n := range through {
			groups = append(groups, []Node{n})
		}
		return groups
	}
	var each []uint64
	for _, n := range through {
		each = append(each, packets(ofNode(in, n)))
	}
	reference := packets(from)
	if reference == 0 { // nobody saw where they come from: what comes to the next hosts
		reference = packets(slices.DeleteFunc(slices.Clone(in), func(p Point) bool { return slices.Contains(through, p.Node) }))
	}
	if parallel(each, reference) {
		return [][]Node{through}
	}
	if f.traced(through) {
		for _, n := range through {
			groups = append(groups, []Node{n})
		}
		return groups
	}
	order.By(through, func(a, b Node) int { return first(ofNode(in, a)).Compare(first(ofNode(in, b))) })
	f.doubt("packets pass %v with hop limit %d alike: they are in the order of their clocks", through, level)
	for _, n := range through {
		groups = append(groups, []Node{n})
	}
	return groups
}

func ofNode(points []Point, n Node) (list []Point) {
	for _, p := range points {
		if p.Node == n {
			list = append(list, p)
		}
	}
	return list
}

func packets(points []Point) (n uint64) {
	for i := range points {
		n += points[i].Packets
	}
	return n
}

func first(points []Point) (t time.Time) {
	for i := range points {
		if t.IsZero() || points[i].First.Before(t) {
			t = points[i].First
		}
	}
	return t
}

// parallel reports whether counts add up to a reference, instead of each being as large; 0: there is no reference.
func parallel(each []uint64, reference uint64) bool {
	if reference == 0 {
		return false
	}
	var sum uint64
	for _, n := range each {
		sum += n
	}
	return distance(sum, reference) < distance(slices.Max(each), reference)
}

func distance(a, b uint64) uint64 { return max(a, b) - min(a, b) }

// distinct leaves one point of those at one node that counted the same packets one behind the other. Those that packets were
// divided between remain.
func (f *finder) distinct(points, others []Point) (list []Point) {
	for _, n := range nodes(points) {
		mine := ofNode(points, n)
		if ends := f.ofLinks(mine, f.reference(mine, others)); len(ends) > 0 {
			list = append(list, ends...)
			continue
		}
		list = append(list, nearest(mine, f.reference(mine, others))...)
	}
	return list
}

// ofLinks are the points at ends of known links, unless further ones of the node are needed for all that passed it.
func (f *finder) ofLinks(mine []Point, reference uint64) []Point {
	ends := slices.DeleteFunc(slices.Clone(mine), func(p Point) bool {
		return !slices.ContainsFunc(f.links, func(l Link) bool {
			e := End{p.Node, p.Iface}
			return l.A == e || l.B == e
		})
	})
	// Tunnels and what they lie on are ends of links, of which the packets inside a tunnel pass both.
	if inside := slices.DeleteFunc(slices.Clone(ends), func(p Point) bool { return p.Tunnel == flow.TunnelNone }); len(inside) > 0 {
		ends = inside
	}
	if len(ends) == 0 || reference > 0 && distance(packets(mine), reference) < distance(packets(ends), reference) {
		return nil
	}
	ends[0].Again = without(mine, ends)
	return ends
}

// reference is what the counts of a node can be compared with: its other direction, where that is at one interface, or what
// comes in at, or leaves, the hosts at the other end of the links with the same hop limits; 0: nothing.
func (f *finder) reference(mine, others []Point) (sum uint64) {
	if here := ofNode(others, mine[0].Node); len(here) == 1 {
		return here[0].Packets
	}
	for _, p := range others {
		level := func(o Point) bool { return o.TTLMax == p.TTLMax }
		// Hosts that packets cross with one hop limit would count them once more.
		through := slices.ContainsFunc(ofNode(f.in, p.Node), level) && slices.ContainsFunc(ofNode(f.out, p.Node), level)
		if p.Node != mine[0].Node && !through && slices.ContainsFunc(mine, level) {
			sum += p.Packets
		}
	}
	return sum
}

// mostPoints is for how many interfaces of a node nearest tries all choices.
const mostPoints = 10

// nearest chooses the points which together counted each packet once: of the choices that come nearest to the reference, the
// one with the most points, since what divides packets between interfaces is behind what counts them all.
func nearest(mine []Point, reference uint64) []Point {
	if len(mine) < 2 {
		return mine
	}
	if reference == 0 || len(mine) > mostPoints {
		return []Point{outermost(mine)}
	}
	sums := make([]uint64, 1<<len(mine))
	best := reference
	for set := 1; set < len(sums); set++ {
		last := bits.TrailingZeros(uint(set))
		sums[set] = sums[set&^(1<<last)] + mine[last].Packets
		best = min(best, distance(sums[set], reference))
	}
	chosen := 0
	for set := 1; set < len(sums); set++ {
		if off := distance(sums[set], reference); off <= best+reference/16 && (chosen == 0 || cmp.Or(
			cmp.Compare(bits.OnesCount(uint(set)), bits.OnesCount(uint(chosen))), cmp.Compare(distance(sums[chosen], reference), off)) > 0) {
			chosen = set
		}
	}
	var list, again []Point
	for i := range mine {
		if chosen&(1<<i) != 0 {
			list = append(list, mine[i])
		} else {
			again = append(again, mine[i])
		}
	}
	if len(list) == 1 {
		return []Point{outermost(mine)}
	}
	list[0].Again = again
	return list
}

// outermost is the interface of a row of them that is next to the link: the first of those that come in has lost least, the
// last of those that leave most.
func outermost(same []Point) Point {
	at := 0
	for i := range same {
		if same[0].Direction == flow.Ingress && same[i].Packets > same[at].Packets || same[0].Direction == flow.Egress && same[i].Packets < same[at].Packets {
			at = i
		}
	}
	p := same[at]
	p.Again = slices.Delete(slices.Clone(same), at, at+1)
	return p
}
