package timeline

import (
	"cmp"
	"slices"

	"github.com/waymark-net/waymark/internal/topology"
)

// neighbours adds those who are on links: one node for each link layer address, or for each other end of a tunnel, on the port
// that a bridge has learned, else on the interface.
func (b *builder) neighbours(known []topology.Neighbour, announced []Announcement, most int) {
	known = slices.Clone(known)
	slices.SortFunc(known, func(x, y topology.Neighbour) int {
		return cmp.Or(cmp.Compare(x.Netns, y.Netns), cmp.Compare(x.IfIndex, y.IfIndex), cmp.Compare(x.Source, y.Source),
			x.Addr.Compare(y.Addr), cmp.Compare(x.MAC, y.MAC))
	})
	for _, n := range known {
		if n.Source == topology.FDB {
			if port, ok := b.index[netnsIndex{n.Netns, n.IfIndex}]; ok {
				b.learned[n.Netns+" "+n.MAC] = port
			}
		}
	}
	count := map[string]int{} // by interface
	for _, a := range announced {
		if at, ok := b.index[netnsIndex{a.Netns, a.IfIndex}]; ok {
			b.announced(&a, at)
		}
	}
	for i := range known {
		b.neighbour(&known[i], count, most)
	}
}

func (b *builder) neighbour(n *topology.Neighbour, count map[string]int, most int) {
	at, ok := b.index[netnsIndex{n.Netns, n.IfIndex}]
	if _, own := b.byMAC[n.MAC]; !ok || own {
		return // it is an interface of this host, whose connection is known
	}
	if port, ok := b.learned[n.Netns+" "+n.MAC]; ok && n.Source != topology.Tunnel {
		at = port
	}
	name := n.MAC
	if n.Source == topology.Tunnel {
		name = n.Addr.String()
	}
	id := "neighbour/" + n.Netns + "/" + name
	if _, there := b.byID[id]; !there {
		if count[at] == most {
			b.g.Hidden++
			return
		}
		count[at]++
	}
	node := b.add(Node{ID: id, Kind: Neighbour, Name: name, In: netnsID(n.Netns), MAC: n.MAC})
	if n.Addr.IsValid() {
		node.Addresses = include(node.Addresses, n.Addr.String())
	}
	node.Known = include(node.Known, string(n.Source))
	b.edge(Link, id, at)
}

// announced adds a neighbour that says who it is.
func (b *builder) announced(a *Announcement, at string) {
	name := a.MAC
	if name == "" {
		name = a.Chassis
	}
	id := "neighbour/" + a.Netns + "/" + name
	node := b.add(Node{ID: id, Kind: Neighbour, Name: cmp.Or(a.Name, name), In: netnsID(a.Netns), MAC: a.MAC, Port: a.Port})
	if a.Addr.IsValid() {
		node.Addresses = include(node.Addresses, a.Addr.String())
	}
	node.Known = include(node.Known, string(topology.LLDP))
	b.edge(Link, id, at)
}

func include(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	list = append(list, s)
	slices.Sort(list)
	return list
}
