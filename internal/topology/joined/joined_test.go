package joined

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/internal/topology/timeline"
)

// said is what a host with interfaces says; each is NETNS/NAME KIND MAC ADDRESS.
func said(name string, ifaces []string, change func(*timeline.Sources)) *Host {
	s := timeline.Sources{Host: name, Neighbours: 64}
	s.Links.Netns = []string{""}
	for i, text := range ifaces {
		f := strings.Fields(text)
		netns, iface, _ := strings.Cut(f[0], "/")
		n := topology.Node{Link: topology.Link{Netns: netns, Name: iface, Kind: f[1], MAC: f[2], IfIndex: uint32(i + 1)}}
		for _, a := range f[3:] {
			n.Addresses = append(n.Addresses, netip.MustParsePrefix(a))
		}
		if netns != "" && !slices.Contains(s.Links.Netns, netns) {
			s.Links.Netns = append(s.Links.Netns, netns)
		}
		s.Links.Nodes = append(s.Links.Nodes, n)
	}
	if change != nil {
		change(&s)
	}
	g := timeline.Build(s)
	return Of(name, &g)
}

// sees adds neighbours to an interface; each is MAC ADDRESS SOURCE.
func sees(index uint32, list ...string) func(*timeline.Sources) {
	return func(s *timeline.Sources) {
		for _, text := range list {
			f := strings.Fields(text)
			n := topology.Neighbour{IfIndex: index, Source: topology.Source(f[2])}
			if f[0] != "-" {
				n.MAC = f[0]
			}
			if f[1] != "-" {
				n.Addr = netip.MustParseAddr(f[1])
			}
			s.Links.Neighbours = append(s.Links.Neighbours, n)
		}
	}
}

const (
	macA, macB, macC = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"
	virtualMAC       = "00:00:5e:00:01:07"
)

func TestJoin(t *testing.T) {
	ref := func(s *timeline.Sources, of, to int) *topology.Ref {
		n := &s.Links.Nodes[to]
		_ = of
		return &topology.Ref{Netns: n.Netns, Name: n.Name, IfIndex: n.IfIndex, Known: true}
	}
	alpha := []string{"/eth0 physical " + macA + " 192.0.2.1/24"}
	for name, c := range map[string]struct {
		hosts     []*Host
		links     []string // A, B, found
		ambiguous []string // kind value claims unused
	}{
		"one side sees the other": {
			hosts: []*Host{said("a", alpha, sees(1, macB+" 192.0.2.2 arp")), said("b", []string{"/eth1 physical " + macB}, nil)},
			links: []string{"a eth0, b eth1, arp"},
		},
		"a copied machine, whom the address decides": {
			hosts: []*Host{
				said("a", alpha, sees(1, macB+" 192.0.2.2 arp")),
				said("b", []string{"/eth0 physical " + macB + " 192.0.2.2/24"}, nil), said("c", []string{"/eth0 physical " + macB + " 192.0.2.3/24"}, nil),
			},
			links: []string{"a eth0, b eth0, arp"}, ambiguous: []string{"mac " + macB + " b eth0, c eth0 0"},
		},
		"a copied machine, and nothing decides": {
			hosts: []*Host{
				said("a", alpha, sees(1, macB+" 192.0.2.2 arp")),
				said("b", []string{"/eth0 physical " + macB + " 192.0.2.2/24"}, nil), said("c", []string{"/eth0 physical " + macB + " 192.0.2.2/24"}, nil),
			},
			ambiguous: []string{"mac " + macB + " b eth0, c eth0 1", "address 192.0.2.2 b eth0, c eth0 0"},
		},
		"a virtual router, whom one has at this moment": {
			hosts: []*Host{
				said("a", alpha, sees(1, virtualMAC+" 192.0.2.9 arp")),
				said("b", []string{"/eth0 physical " + macB, "/vrrp.7 macvlan " + virtualMAC + " 192.0.2.9/32"}, sees(1, macA+" 192.0.2.1 arp")),
			},
			links: []string{"a eth0, b eth0, arp"}, ambiguous: []string{"mac " + virtualMAC + " b vrrp.7 1"},
		},
		"the same private address behind two hosts": {
			hosts: []*Host{
				said("a", append(alpha, "/docker0 bridge 02:42:00:00:00:01 172.17.0.1/16"), nil),
				said("b", []string{"/docker0 bridge 02:42:00:00:00:02 172.17.0.1/16"}, nil),
			},
			ambiguous: []string{"address 172.17.0.1 a docker0, b docker0 0"},
		},
		"addresses of links and hosts alone mean nothing": {
			hosts: []*Host{said("a", []string{"/lo loopback 00:00:00:00:00:00 127.0.0.1/8", "/eth0 physical " + macA + " fe80::1/64"}, nil), said("b", []string{"/lo loopback 00:00:00:00:00:00 127.0.0.1/8", "/eth0 physical " + macB + " fe80::1/64"}, nil)},
		},
		"an announced host": {
			hosts: []*Host{
				said("a", alpha, func(s *timeline.Sources) {
					s.Announced = []timeline.Announcement{{IfIndex: 1, Chassis: "b-7", Name: "b.example", Port: "eth1"}}
				}),
				said("b", []string{"/eth0 physical " + macB, "/eth1 physical " + macC}, nil),
			},
			links: []string{"a eth0, b eth1, lldp"},
		},
		"a tunnel": {
			hosts: []*Host{
				said("a", append(alpha, "/vx0 vxlan 02:00:00:00:01:0a"), sees(2, "- 192.0.2.2 tunnel")),
				said("b", []string{"/eth0 physical " + macB + " 192.0.2.2/24", "/vx9 vxlan 02:00:00:00:01:0b"}, sees(2, "- 192.0.2.1 tunnel")),
			},
			links: []string{"a vx0, b vx9, tunnel"},
		},
		"two tunnels between the same hosts": {
			hosts: []*Host{
				said("a", append(alpha, "/vx0 vxlan 02:00:00:00:01:0a"), sees(2, "- 192.0.2.2 tunnel")),
				said("b", []string{"/eth0 physical " + macB + " 192.0.2.2/24", "/vx1 vxlan 02:00:00:00:01:0b", "/vx2 vxlan 02:00:00:00:01:0c"}, func(s *timeline.Sources) {
					sees(2, "- 192.0.2.1 tunnel")(s)
					sees(3, "- 192.0.2.1 tunnel")(s)
				}),
			},
			links: []string{"a vx0, b vx1, tunnel", "a vx0, b vx2, tunnel"}, ambiguous: []string{"tunnel a vx0 to 192.0.2.2 b vx1, b vx2 1"},
		},
		"nodes of a trace, over a link and over something else": {
			hosts: []*Host{
				said("a", alpha, func(s *timeline.Sources) { s.Own = []string{"1"}; sees(1, macB+" 192.0.2.2 arp")(s) }),
				said("b", []string{"/eth0 physical " + macB}, func(s *timeline.Sources) { s.Own = []string{"2"} }),
				said("c", nil, func(s *timeline.Sources) { s.Own = []string{"3"}; s.Traces = [][]string{{"1", "2", "3"}} }),
			},
			links: []string{"a eth0, b eth0, arp ioam", "b, c, ioam"},
		},
		"two with one node id": {
			hosts: []*Host{
				said("a", nil, func(s *timeline.Sources) { s.Own = []string{"1"} }), said("b", nil, func(s *timeline.Sources) { s.Own = []string{"1"} }),
				said("c", nil, func(s *timeline.Sources) { s.Own = []string{"3"}; s.Traces = [][]string{{"1", "3"}} }),
			},
			ambiguous: []string{"node_id 1 a, b 0"},
		},
		"a container behind a bridge": {
			hosts: []*Host{
				said("a", alpha, sees(1, macC+" 192.0.2.3 arp")),
				said("b", []string{"/eth0 physical " + macB, "/br0 bridge " + macB, "/v1 veth 02:00:00:00:02:01", "blue/c0 veth " + macC + " 192.0.2.3/24"}, func(s *timeline.Sources) {
					s.Links.Nodes[0].Master, s.Links.Nodes[2].Master = ref(s, 0, 1), ref(s, 2, 1)
					s.Links.Nodes[2].Peer, s.Links.Nodes[3].Peer = ref(s, 2, 3), ref(s, 3, 2)
					sees(1, macA+" - fdb")(s)
				}),
			},
			links: []string{"a eth0, b eth0, fdb"},
		},
		"a bond, and VLANs on it": {
			hosts: []*Host{
				said("a", alpha, sees(1, macB+" 192.0.2.2 arp")),
				said("b", []string{"/eth0 physical " + macB, "/eth1 physical " + macB, "/bond0 bond " + macB, "/bond0.5 vlan " + macB + " 192.0.2.2/24"}, func(s *timeline.Sources) {
					s.Links.Nodes[0].Master, s.Links.Nodes[1].Master, s.Links.Nodes[3].Parent = ref(s, 0, 2), ref(s, 1, 2), ref(s, 3, 2)
					sees(4, macA+" 192.0.2.1 arp")(s)
				}),
			},
			links: []string{"a eth0, b bond0, arp"},
		},
	} {
		joined := Join(c.hosts)
		var links, ambiguous []string
		for _, l := range joined.Links {
			links = append(links, l.A.String()+", "+l.B.String()+", "+strings.Join(l.Found, " "))
		}
		for _, d := range joined.Ambiguous {
			var claims []string
			for _, e := range d.Claims {
				claims = append(claims, e.String())
			}
			ambiguous = append(ambiguous, strings.Join([]string{string(d.Kind), d.Value, strings.Join(claims, ", "), string(rune('0' + d.Unused))}, " "))
		}
		if !slices.Equal(links, c.links) {
			t.Errorf("%s: links %q, want %q", name, links, c.links)
		}
		if !slices.Equal(ambiguous, c.ambiguous) {
			t.Errorf("%s: ambiguous %q, want %q", name, ambiguous, c.ambiguous)
		}
		var text strings.Builder
		if err := joined.Write(&text); err != nil || len(c.links) > 0 && !strings.Contains(text.String(), strings.Split(c.links[0], ",")[0]) {
			t.Errorf("%s: %v\n%s", name, err, &text)
		}
		if g := joined.Picture(); len(g.Edges) != len(c.links) {
			t.Errorf("%s: picture %+v", name, g)
		}
	}
}
