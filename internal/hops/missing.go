package hops

import "github.com/waymark-net/waymark/internal/flow"

// missing appends a link that lost all packets of the flow: they left where only the destination is next, which counts and saw
// none.
func (f *finder) missing(p *Point) bool {
	if f.facts.Expected == nil {
		return false
	}
	to, ok := f.facts.Expected(End{p.Node, p.Iface}, f.to)
	if !ok || len(ofNode(f.in, to.Node)) > 0 {
		return false
	}
	none := Point{
		Node: to.Node, Iface: to.Iface, Direction: flow.Ingress, VLAN: p.VLAN, InnerVLAN: p.InnerVLAN,
		TTLMin: p.TTLMin, TTLMax: p.TTLMax, First: p.First, Last: p.Last,
	}
	part := Part{Kind: OnLink, From: []Point{*p}, To: []Point{none}}
	f.compare(&part)
	f.path.Parts = append(f.path.Parts, part)
	return true
}
