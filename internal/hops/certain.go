package hops

// Inner is what hosts counted of a flow in shorter times than Facts.Windows.
type Inner struct {
	Points  *Points
	Windows map[string]Window
}

// Certain is how many packets a part of a path has lost at least, however the flow was divided in time. Of a flow that began
// before both ends counted, or goes on, what left in the shorter time is compared with what arrived in the longer one.
func (f *Facts) Certain(p *Part, inner *Inner) uint64 {
	if f.Over(p) {
		return p.Lost
	}
	var sent uint64
	for i := range p.From {
		from, ok := inner.Windows[p.From[i].Host]
		if !ok || inner.Points == nil {
			return 0
		}
		for k := range p.To {
			to, ok := f.Windows[p.To[k].Host]
			if !ok || from.From.Before(to.From.Add(f.Clock)) || from.To.After(to.To.Add(-f.Clock)) {
				return 0
			}
		}
		if one := inner.Points.points[p.From[i].at()]; one != nil {
			sent += one.Packets
		}
	}
	return sent - min(sent, p.Received)
}

// Over reports whether both ends counted all packets: none came before or after, and none was on its way, as in the queue of a host.
func (f *Facts) Over(p *Part) bool {
	if p.Margin > 0 {
		return false
	}
	for i := range p.From {
		if w, ok := f.Windows[p.From[i].Host]; ok && !p.From[i].Last.Before(w.To.Add(-f.Clock)) {
			return false
		}
	}
	return true
}

// at is what makes it another point than others.
func (p *Point) at() place {
	return place{p.Node, p.Iface, p.Direction, p.VLAN, p.InnerVLAN, p.Tunnel, p.VNI}
}
