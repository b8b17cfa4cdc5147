// Package timeline is the graph of this host's network with its past: what is connected with what, now and at 14:02. Input:
// the interfaces and neighbours that package topology reads, announcements of switches (LLDP), nodes of IOAM traces.
// Output: versions of a graph, each with the place of every node in a picture. Callers: the agent, which notes what
// it reads, and answers from it.
//
// A version begins when something is connected or named differently. Counters make no version: see Use.
package timeline

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/topology"
)

// Graph is what was connected with what from a moment on.
type Graph struct {
	Since time.Time `json:"since"` // when it became so
	Nodes []Node    `json:"nodes"`
	Edges []Edge    `json:"edges"`
	// Hidden are neighbours beyond the bound of each interface.
	Hidden int `json:"hidden,omitempty"`
}

// Kind is what a node is.
type Kind string

// The kinds of nodes.
const (
	Host      Kind = "host"
	Netns     Kind = "netns"
	Iface     Kind = "interface"
	Neighbour Kind = "neighbour"
	IOAM      Kind = "ioam"
)

// Node is a host, a namespace, an interface, or someone on a link. Its identity is made of names, so that what is made again
// under its name has the same place.
type Node struct {
	ID        string   `json:"id"`
	Kind      Kind     `json:"kind"`
	Name      string   `json:"name"`
	In        string   `json:"in,omitempty"`   // the node that it lies in
	Link      string   `json:"link,omitempty"` // of an interface: veth, bridge, vxlan, physical, …
	IfIndex   uint32   `json:"ifindex,omitempty"`
	MTU       int      `json:"mtu,omitempty"`
	Up        bool     `json:"up,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	Known     []string `json:"known,omitempty"` // of a neighbour: how, arp, ndp, fdb, tunnel, lldp
	Port      string   `json:"port,omitempty"`  // of a neighbour: its end of the link, as it announces it
	Tier      int      `json:"tier"`            // column of the picture, from the network to the applications
	Order     int      `json:"order"`           // in the tier
}

// Edge connects two nodes.
type Edge struct {
	Kind EdgeKind `json:"kind"`
	From string   `json:"from"` // nearer to the network
	To   string   `json:"to"`
}

// EdgeKind is how two nodes are connected.
type EdgeKind string

// The kinds of edges.
const (
	Pair   EdgeKind = "pair"   // the ends of a veth or netkit pair
	Lower  EdgeKind = "lower"  // a VLAN, macvlan or tunnel on the interface that it lies on
	Member EdgeKind = "member" // a port of a bridge, bond or VRF
	Link   EdgeKind = "link"   // someone on the link of an interface
	Path   EdgeKind = "path"   // the next node of IOAM traces
)

// Sources are what a graph is made of.
type Sources struct {
	Host       string
	Links      topology.Graph
	Announced  []Announcement
	Own        []string   // ids of this host as an IOAM node
	Traces     [][]string // ids of IOAM nodes, from the first to this host
	Neighbours int        // at most, of each interface
}

// Announcement is what a neighbour says of itself (LLDP).
type Announcement struct {
	Netns   string
	IfIndex uint32
	Chassis string // its identity
	MAC     string // if that is one
	Name    string
	Port    string
	Addr    netip.Addr
}

// Build makes the graph. The same sources give the same graph, in whatever order they are.
func Build(s Sources) Graph {
	b := builder{byID: map[string]int{}, edges: map[Edge]bool{}, index: map[netnsIndex]string{}, byMAC: map[string]string{}, learned: map[string]string{}}
	b.add(Node{ID: "host", Kind: Host, Name: s.Host})
	for _, name := range s.Links.Netns {
		if name != "" {
			b.add(Node{ID: netnsID(name), Kind: Netns, Name: name, In: "host"})
		}
	}
	for i := range s.Links.Nodes {
		b.link(&s.Links.Nodes[i])
	}
	for i := range s.Links.Nodes {
		b.connect(&s.Links.Nodes[i])
	}
	b.neighbours(slices.Concat(s.Links.Neighbours, tunnels(s.Links.Nodes)), s.Announced, max(s.Neighbours, 1))
	b.traces(s.Own, s.Traces)
	return b.finish()
}

// tunnels are the other ends of those that have one.
func tunnels(links []topology.Node) (ends []topology.Neighbour) {
	for _, l := range links {
		if l.Remote.IsValid() {
			ends = append(ends, topology.Neighbour{Netns: l.Netns, IfIndex: l.IfIndex, Addr: l.Remote, Source: topology.Tunnel})
		}
	}
	return ends
}

type netnsIndex struct {
	netns string
	index uint32
}

type builder struct {
	g       Graph
	byID    map[string]int // of nodes
	edges   map[Edge]bool
	index   map[netnsIndex]string
	byMAC   map[string]string // own interfaces
	learned map[string]string // port of a bridge, by bridge and link layer address
}

func netnsID(name string) string {
	if name == "" {
		return "host"
	}
	return "netns/" + name
}

func (b *builder) add(n Node) *Node {
	if at, ok := b.byID[n.ID]; ok {
		return &b.g.Nodes[at]
	}
	b.byID[n.ID] = len(b.g.Nodes)
	b.g.Nodes = append(b.g.Nodes, n)
	return &b.g.Nodes[len(b.g.Nodes)-1]
}

func (b *builder) link(l *topology.Node) {
	n := Node{
		ID: ifaceID(l.Netns, l.Name), Kind: Iface, Name: l.Name, In: netnsID(l.Netns), Link: l.Kind, IfIndex: l.IfIndex,
		MTU: l.MTU, Up: l.Up, MAC: l.MAC,
	}
	for _, a := range l.Addresses {
		n.Addresses = append(n.Addresses, a.String())
	}
	slices.Sort(n.Addresses)
	b.index[netnsIndex{l.Netns, l.IfIndex}] = n.ID
	if l.MAC != "" {
		b.byMAC[l.MAC] = n.ID
	}
	b.add(n)
}

func ifaceID(netns, name string) string { return "interface/" + netns + "/" + name }

// connect adds the edges of an interface to others of this host.
func (b *builder) connect(l *topology.Node) {
	own := ifaceID(l.Netns, l.Name)
	if to, ok := b.target(l.Master); ok {
		b.edge(Member, own, to)
	}
	if to, ok := b.target(l.Parent); ok {
		b.edge(Lower, to, own)
	}
	if to, ok := b.target(l.Peer); ok && own < to { // each end names the other
		from, to := b.outward(own, to)
		b.edge(Pair, from, to)
	}
}

func (b *builder) target(r *topology.Ref) (string, bool) {
	if r == nil {
		return "", false
	}
	id, ok := b.index[netnsIndex{r.Netns, r.IfIndex}]
	return id, ok && r.Known
}

// outward orders the ends of a pair: the one in this host's own namespace is nearer to the network.
func (b *builder) outward(x, y string) (from, to string) {
	if b.g.Nodes[b.byID[y]].In == "host" && b.g.Nodes[b.byID[x]].In != "host" {
		return y, x
	}
	return x, y
}

func (b *builder) edge(kind EdgeKind, from, to string) {
	if e := (Edge{kind, from, to}); from != to && !b.edges[e] {
		b.edges[e] = true
		b.g.Edges = append(b.g.Edges, e)
	}
}

// traces adds the nodes of IOAM traces; own are those that this host is.
func (b *builder) traces(own []string, all [][]string) {
	for _, name := range own {
		b.add(Node{ID: "ioam/" + name, Kind: IOAM, Name: name, In: "host"})
	}
	for _, nodes := range all {
		before := ""
		for _, name := range nodes {
			id := "ioam/" + name
			b.add(Node{ID: id, Kind: IOAM, Name: name})
			if before != "" {
				b.edge(Path, before, id)
			}
			before = id
		}
	}
}

func (b *builder) finish() Graph {
	slices.SortFunc(b.g.Nodes, func(x, y Node) int { return cmp.Compare(x.ID, y.ID) })
	slices.SortFunc(b.g.Edges, func(x, y Edge) int {
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To), cmp.Compare(x.Kind, y.Kind))
	})
	if b.g.Edges == nil {
		b.g.Edges = []Edge{}
	}
	arrange(&b.g)
	return b.g
}

// label is a node in a line of text.
func (n *Node) label() string {
	parts := []string{n.Name}
	if n.Link != "" {
		parts = append(parts, n.Link)
	}
	if n.Kind == Iface && !n.Up {
		parts = append(parts, "down")
	}
	if n.MAC != "" && n.Name != n.MAC {
		parts = append(parts, n.MAC)
	}
	parts = append(parts, n.Addresses...)
	if n.Port != "" {
		parts = append(parts, fmt.Sprintf("port %s", n.Port))
	}
	if len(n.Known) > 0 {
		parts = append(parts, "("+strings.Join(n.Known, ", ")+")")
	}
	return strings.Join(parts, " ")
}
