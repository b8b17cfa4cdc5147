package l2

// resolver resolves for some ports, by index.
type resolver struct {
	*State
	ports map[uint32]bool
	vlans map[Arrival]*Link // VLAN interfaces, by the interface below and tag
	out   Table
}

// Resolve finds the ways between ports, by index, and interfaces that route.
func Resolve(s *State, ports map[uint32]bool) Table {
	r := resolver{
		State: s, ports: ports, vlans: map[Arrival]*Link{},
		out: Table{Arrivals: map[Arrival]Upper{}, Routes: map[uint32]Lower{}, Stations: map[Place]Behind{}},
	}
	for _, l := range s.Links {
		if l.Kind == "vlan" && l.Parent != 0 {
			r.vlans[Arrival{l.Parent, l.Tag}] = l
		}
	}
	for index := range ports {
		if p := s.Links[index]; p != nil && p.Up {
			r.arrive(Arrival{Port: index}, p, Tag{})
			r.arriveTagged(p)
		}
	}
	for _, l := range s.Links {
		r.leave(l)
	}
	for i := range s.Stations {
		r.station(&s.Stations[i])
	}
	return r.out
}

// arriveTagged goes through the tags that frames of a port may have. A VLAN interface gets its frames before a bridge does.
func (r *resolver) arriveTagged(p *Link) {
	b := r.Links[p.Master]
	through := func(tag Tag) {
		if r.vlans[Arrival{p.Index, tag}] == nil {
			r.arrive(Arrival{p.Index, tag}, p, tag)
		}
	}
	for at, l := range r.vlans {
		switch {
		case at.Port == p.Index && l.Up:
			r.arrive(at, l, Tag{})
		case b != nil && b.Bridge != nil && at.Port == b.Index && !b.Bridge.Filters:
			through(at.Tag)
		}
	}
	if b != nil && b.Bridge != nil && b.Bridge.Filters {
		for vid := range r.VLANs[p.Index] {
			through(Tag{b.Bridge.Proto, vid})
		}
	}
}

// arrive follows a frame from an interface on, with what tag is left of it.
func (r *resolver) arrive(from Arrival, at *Link, tag Tag) {
	b := r.Links[at.Master]
	if b == nil || b.Bridge == nil {
		if tag == (Tag{}) {
			r.route(from, at, Upper{})
		}
		return
	}
	if !b.Up || !r.isPlain(at) || b.Bridge.Trees {
		return
	}
	up := Upper{Bridge: b.Index}
	if at.Port.Learns {
		up.Member = at.Index
	}
	if b.Bridge.Filters {
		if tag == (Tag{}) {
			tag = Tag{b.Bridge.Proto, r.primary(at.Index)}
		}
		own, known := r.VLANs[b.Index][tag.VID]
		if !r.VLANs[at.Index][tag.VID].Passes || !known || !own.Passes {
			return
		}
		up.VID = tag.VID
		if own.Untagged {
			tag = Tag{}
		}
	}
	routes := b
	if tag != (Tag{}) {
		routes = r.vlans[Arrival{b.Index, tag}]
	}
	if routes != nil && (routes == b || routes.MAC == b.MAC) { // others are not among the bridge's own addresses
		r.route(from, routes, up)
	}
}

// route has an interface route frames, unless they belong to another one.
func (r *resolver) route(from Arrival, at *Link, up Upper) {
	up.Device, up.Scope, up.MAC = at.Index, at.Index, at.MAC
	if at.Master != 0 {
		vrf := r.Links[at.Master]
		if vrf == nil || vrf.Kind != "vrf" || !vrf.Up {
			return
		}
		up.Scope = vrf.Index
	}
	if at.Up && at.MAC != (MAC{}) {
		r.out.Arrivals[from] = up
	}
}

// isPlain reports whether a port of a bridge passes frames as bridges usually do.
func (r *resolver) isPlain(l *Link) bool {
	return l.Port != nil && l.Port.Forwards && !l.Port.Special
}

// primary is the VLAN of untagged frames; 0: they have none.
func (r *resolver) primary(index uint32) uint16 {
	for vid, m := range r.VLANs[index] {
		if m.Primary {
			return vid
		}
	}
	return 0
}

// leave finds how packets leave that are routed to an interface.
func (r *resolver) leave(l *Link) {
	switch {
	case !l.Up || l.Maps:
	case l.Bridge != nil && !l.Bridge.Trees:
		vid := uint16(0)
		if l.Bridge.Filters {
			if vid = r.primary(l.Index); vid == 0 || !r.VLANs[l.Index][vid].Passes {
				return
			}
		}
		r.out.Routes[l.Index] = Lower{Bridge: l.Index, VID: vid}
	case l.Kind == "vlan" && r.ports[l.Parent]:
		if mtu := r.mtu(l.Parent); mtu > 0 {
			r.out.Routes[l.Index] = Lower{Port: l.Parent, Tag: l.Tag, MTU: mtu}
		}
	case l.Kind == "vlan":
		b := r.Links[l.Parent]
		if b == nil || b.Bridge == nil || !b.Up || b.Bridge.Trees {
			return
		}
		if !b.Bridge.Filters { // the tag passes the bridge
			r.out.Routes[l.Index] = Lower{Bridge: b.Index, Tag: l.Tag}
		} else if r.VLANs[b.Index][l.Tag.VID].Passes && l.Tag.Proto == b.Bridge.Proto {
			r.out.Routes[l.Index] = Lower{Bridge: b.Index, VID: l.Tag.VID}
		}
	}
}

// mtu is that of a port; 0: it is down.
func (r *resolver) mtu(index uint32) uint32 {
	if l := r.Links[index]; l != nil && l.Up {
		return l.MTU
	}
	return 0
}

// station finds how frames leave for a station of a bridge.
func (r *resolver) station(s *Station) {
	b, member := r.Links[s.Bridge], r.Links[s.Port]
	if b == nil || b.Bridge == nil || b.Bridge.Trees || member == nil || !member.Up || member.Master != b.Index || !r.isPlain(member) || member.Maps {
		return
	}
	behind := Behind{Member: member.Index}
	switch {
	case r.ports[member.Index]:
		behind.Port = member.Index
	case member.Kind == "vlan" && r.ports[member.Parent]:
		behind.Port, behind.Tag = member.Parent, member.Tag
	default:
		return
	}
	if b.Bridge.Filters {
		m := r.VLANs[member.Index][s.VID]
		if !m.Passes {
			return
		}
		if !m.Untagged {
			if behind.Tag != (Tag{}) {
				return // two tags
			}
			behind.Tag = Tag{b.Bridge.Proto, s.VID}
		}
	}
	if behind.MTU = min(r.mtu(behind.Port), member.MTU); behind.MTU > 0 {
		r.out.Stations[Place{s.Bridge, s.VID, s.MAC}] = behind
	}
}
