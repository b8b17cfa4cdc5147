package topology

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// Graph is the interfaces of this host and how they hang together.
type Graph struct {
	Netns []string `json:"netns"` // names; the agent's own is empty
	Nodes []Node   `json:"nodes"`
	// Neighbours are what the kernel knows of hosts on the links.
	Neighbours []Neighbour `json:"neighbours"`
}

// Node is one interface.
type Node struct {
	Link
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	Peer      *Ref           `json:"peer,omitempty"`   // the other end of a veth or netkit pair
	Parent    *Ref           `json:"parent,omitempty"` // what a vlan, macvlan or tunnel lies on
	Master    *Ref           `json:"master,omitempty"` // bridge, bond or vrf
	Remote    netip.Addr     `json:"remote,omitzero"`  // the other end of a tunnel that has one
}

// Ref names an interface elsewhere in the graph. Known is false when it lies in
// a namespace that is not watched: only its ifindex there is known then.
type Ref struct {
	Netns   string `json:"netns,omitempty"`
	Name    string `json:"name,omitempty"`
	IfIndex uint32 `json:"ifindex"`
	Known   bool   `json:"known"`
}

// Graph reads the interfaces of all watched namespaces from the kernel.
func (r *Registry) Graph() (Graph, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g := Graph{Netns: []string{}, Nodes: []Node{}, Neighbours: []Neighbour{}}
	for _, number := range slices.Sorted(maps.Keys(r.spaces)) {
		s := r.spaces[number]
		if s.number != number { // its large indices
			continue
		}
		g.Netns = append(g.Netns, s.name)
		nodes, err := r.nodes(s)
		if err != nil {
			return Graph{}, fmt.Errorf("read interfaces of network namespace %q: %w", s.name, err)
		}
		g.Nodes = append(g.Nodes, nodes...)
		neighbours, err := r.hosts(s)
		if err != nil {
			return Graph{}, fmt.Errorf("read neighbours of network namespace %q: %w", s.name, err)
		}
		g.Neighbours = append(g.Neighbours, neighbours...)
	}
	return g, nil
}

func (r *Registry) nodes(s *space) ([]Node, error) {
	links, err := whole(s.handle.LinkList)
	if err != nil {
		return nil, err
	}
	addrs, err := s.handle.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	byIndex := map[int][]netip.Prefix{}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			ones, _ := a.Mask.Size()
			byIndex[a.LinkIndex] = append(byIndex[a.LinkIndex], netip.PrefixFrom(ip.Unmap(), ones))
		}
	}
	neighbours := r.neighbours(s, links)
	var nodes []Node
	for _, nl := range links {
		a := nl.Attrs()
		n := Node{Link: newLink(s, nl), Addresses: byIndex[a.Index], Remote: remoteOf(nl)}
		if a.MasterIndex != 0 {
			n.Master = r.ref(s, a.MasterIndex)
		}
		if below := lowerIndex(nl); below != 0 {
			other := s
			if a.NetNsID >= 0 {
				other = neighbours[a.NetNsID]
			}
			ref := r.ref(other, below)
			if n.Kind == "veth" || n.Kind == "netkit" {
				n.Peer = ref
			} else {
				n.Parent = ref
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// lowerIndex is the ifindex of the peer or of what the link lies on; a VXLAN
// tells it only among its own attributes.
func lowerIndex(l netlink.Link) int {
	if v, ok := l.(*netlink.Vxlan); ok {
		return v.VtepDevIndex
	}
	return l.Attrs().ParentIndex
}

// remoteOf is the other end of a tunnel.
func remoteOf(l netlink.Link) netip.Addr {
	var ip net.IP
	switch t := l.(type) {
	case *netlink.Vxlan:
		ip = t.Group
	case *netlink.Geneve:
		ip = t.Remote
	case *netlink.Iptun:
		ip = t.Remote
	case *netlink.Ip6tnl:
		ip = t.Remote
	case *netlink.Sittun:
		ip = t.Remote
	case *netlink.Gretun:
		ip = t.Remote
	case *netlink.Gretap:
		ip = t.Remote
	}
	a, _ := netip.AddrFromSlice(ip)
	if a = a.Unmap(); !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
		return netip.Addr{}
	}
	return a
}

// ref looks an interface up in s; s may be nil for a namespace that is not watched.
func (r *Registry) ref(s *space, index int) *Ref {
	ref := &Ref{IfIndex: uint32(index)}
	if s == nil {
		return ref
	}
	ref.Netns = s.name
	if i, ok := ifaceOf(s, index); ok {
		k, ok := r.links[i]
		ref.Name, ref.Known = k.Name, ok
	}
	return ref
}

// neighbours resolves the namespace ids that links of s refer to. Such an id has
// meaning only seen from s, so every watched namespace is asked for until all
// are found.
func (r *Registry) neighbours(s *space, links []netlink.Link) map[int]*space {
	wanted := map[int]bool{}
	for _, l := range links {
		if id := l.Attrs().NetNsID; id >= 0 {
			wanted[id] = true
		}
	}
	found := map[int]*space{}
	for _, number := range slices.Sorted(maps.Keys(r.spaces)) {
		if len(found) == len(wanted) {
			break
		}
		other := r.spaces[number]
		// -1: s has no id for it.
		if id, err := s.handle.GetNetNsIdByFd(other.ns.Fd()); err == nil && wanted[id] {
			found[id] = other
		}
	}
	return found
}
