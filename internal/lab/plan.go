package lab

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
)

// plan is a topology: hosts in a line or otherwise, and the links between them.
// Everything else (names, addresses, routes) follows from it.
type plan struct {
	about string
	hosts []string
	links [][2]string
	wired bool // each link runs through the namespace wireHost, where a relay moves the frames
}

// wireHost is the namespace of the relay.
const wireHost = "wire"

var plans = map[string]plan{
	"pair": {
		about: "alpha and beta on one link",
		hosts: []string{"alpha", "beta"},
		links: [][2]string{{"alpha", "beta"}},
	},
	"chain": {
		about: "five nodes in a row; the three in the middle are routers",
		hosts: []string{"alpha", "athos", "porthos", "aramis", "beta"},
		links: [][2]string{{"alpha", "athos"}, {"athos", "porthos"}, {"porthos", "aramis"}, {"aramis", "beta"}},
	},
	"path": {
		about: "alpha and beta, on a link that delays, drops, duplicates and reorders packets",
		hosts: []string{"alpha", "beta"},
		links: [][2]string{{"alpha", "beta"}},
		wired: true,
	},
}

// Topologies are the names that Config.Topology may have.
func Topologies() []string { return slices.Sorted(maps.Keys(plans)) }

// About describes a topology in a line.
func About(topology string) string { return plans[topology].about }

// hostNames are the names of hosts of any topology: what Down looks for.
func hostNames() []string {
	names := map[string]bool{wireHost: true}
	for _, p := range plans {
		for _, h := range p.hosts {
			names[h] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Interface is a host's end of a link.
type Interface struct {
	Name  string           `json:"name"`
	Peer  string           `json:"peer"` // host at the other end
	Addr4 netip.Prefix     `json:"addr4"`
	Addr6 netip.Prefix     `json:"addr6"`
	MAC   net.HardwareAddr `json:"-"`

	link, side int // number of the link from 1, and which end of it, 1 or 2
}

// newHosts numbers the links from 1: link n is 10.0.n.0/24 and 2001:db8:n::/64
// (RFC 3849), its first end has address 1, its second 2.
func (p plan) newHosts(prefix string) []*Host {
	byName := map[string]*Host{}
	var hosts []*Host
	for _, name := range p.hosts {
		h := &Host{Name: name, Netns: prefix + name}
		byName[name] = h
		hosts = append(hosts, h)
	}
	for i, ends := range p.links {
		for side, name := range ends {
			h, peer := byName[name], ends[1-side]
			h.Interfaces = append(h.Interfaces, newInterface(i+1, side+1, peer))
		}
	}
	return hosts
}

func newInterface(link, side int, peer string) Interface {
	return Interface{
		Name:  "to-" + peer,
		Peer:  peer,
		Addr4: netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/24", link, side)),
		Addr6: netip.MustParsePrefix(fmt.Sprintf("2001:db8:%x::%d/64", link, side)),
		// Locally administered (IEEE 802, second bit of the first byte).
		MAC:  net.HardwareAddr{0x02, 'w', 'm', 0, byte(link), byte(side)},
		link: link, side: side,
	}
}

// route leads to a link that a host is not on.
type route struct{ to, via netip.Prefix }

// routes are the shortest ways from one host to every link it is not on.
func routes(hosts []*Host, from *Host) []route {
	byName := map[string]*Host{}
	for _, h := range hosts {
		byName[h.Name] = h
	}
	type step struct {
		host *Host
		hop  Interface // the neighbour's end of from's link; zero for from itself
	}
	var found []route
	known := map[netip.Prefix]bool{}
	seen := map[string]bool{from.Name: true}
	for queue := []step{{host: from}}; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		for _, i := range s.host.Interfaces {
			if !known[i.Addr4.Masked()] && s.host != from {
				found = append(found, route{i.Addr4.Masked(), s.hop.Addr4}, route{i.Addr6.Masked(), s.hop.Addr6})
			}
			known[i.Addr4.Masked()] = true
			if seen[i.Peer] {
				continue
			}
			seen[i.Peer] = true
			next := step{host: byName[i.Peer], hop: s.hop}
			if s.host == from {
				next.hop = next.host.interfaceTo(from.Name)
			}
			queue = append(queue, next)
		}
	}
	return found
}
