package topology

import (
	"fmt"
	"maps"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/flow"
)

// Wiring is how the interfaces of all watched namespaces hang together. Links that
// lie in a namespace that is not watched are left out.
func (r *Registry) Wiring() (*flow.Wiring, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	w := &flow.Wiring{Peers: map[flow.Port]flow.Port{}, Uppers: map[flow.Port][]flow.Port{}}
	direct := map[flow.Port][]flow.Port{}
	for _, number := range slices.Sorted(maps.Keys(r.spaces)) {
		s := r.spaces[number]
		links, err := whole(s.handle.LinkList)
		if err != nil {
			return nil, fmt.Errorf("read interfaces of network namespace %q: %w", s.name, err)
		}
		neighbours := r.neighbours(s, links)
		for _, l := range links {
			a := l.Attrs()
			own := flow.Port{Netns: s.name, IfIndex: uint32(a.Index)}
			if a.MasterIndex != 0 {
				direct[own] = append(direct[own], flow.Port{Netns: s.name, IfIndex: uint32(a.MasterIndex)})
			}
			kind, other := kindOf(l), s
			if a.NetNsID >= 0 {
				other = neighbours[a.NetNsID]
			}
			below := lowerIndex(l)
			switch {
			case kind == "loopback":
				w.Peers[own] = own
			case below == 0 || other == nil:
			case kind == "veth" || kind == "netkit":
				w.Peers[own] = flow.Port{Netns: other.name, IfIndex: uint32(below)}
			default:
				lower := flow.Port{Netns: other.name, IfIndex: uint32(below)}
				direct[lower] = append(direct[lower], own)
			}
		}
	}
	for p := range direct {
		w.Uppers[p] = above(direct, p, nil)
	}
	return w, nil
}

// above adds to found all that lies on a port, at any height.
func above(direct map[flow.Port][]flow.Port, p flow.Port, found []flow.Port) []flow.Port {
	for _, u := range direct[p] {
		if !slices.Contains(found, u) {
			found = above(direct, u, append(found, u))
		}
	}
	return found
}

// wires is what a link says of others.
type wires struct{ master, lower, netns int }

func wiresOf(l netlink.Link) wires {
	a := l.Attrs()
	return wires{a.MasterIndex, lowerIndex(l), a.NetNsID}
}

// Changes counts changes of the wiring since the registry was made.
func (r *Registry) Changes() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.changes
}
