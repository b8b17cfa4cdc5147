// Package joined makes one topology of those of several hosts: which interface of which host is connected with which of
// another. Input: the graph of each host (package timeline). Output: links, how each was found, and what is ambiguous. Callers:
// the analyzer, and the command line, which prints it.
//
// A host is believed what it says of itself: its addresses, link layer addresses, and ids as an IOAM node. What others see on
// their links is compared with that. What two claim is nobody's, and is shown.
package joined

import (
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/topology/timeline"
)

// Topology is what is known of several hosts.
type Topology struct {
	Hosts       []Summary   `json:"hosts"`
	Links       []Link      `json:"links"`
	Ambiguous   []Ambiguity `json:"ambiguous"`
	MoreLinks   int         `json:"more_links,omitempty"`     // that are not listed
	MoreUnclear int         `json:"more_ambiguous,omitempty"` // likewise
	Unsought    int         `json:"unsought,omitempty"`       // neighbours of which it would take too long to find what is between: they are no links here

	all   []Link
	nodes map[string]string // hosts by id of IOAM nodes
	own   map[netip.Addr]End
}

// Summary is a host, with what it sent.
type Summary struct {
	Name       string    `json:"name"`
	Since      time.Time `json:"since,omitzero"` // when its topology became what it is; absent: it sent none
	Interfaces int       `json:"interfaces"`
	Hidden     int       `json:"hidden,omitempty"` // neighbours beyond the bound of the host (topology.neighbours): links may be missing
}

// End is an interface at one end of a link.
type End struct {
	Host  string `json:"host"`
	Netns string `json:"netns,omitempty"`
	Iface string `json:"iface,omitempty"` // absent: it is not known which
}

func (e End) String() string {
	text := e.Host
	if e.Netns != "" {
		text += "/" + e.Netns
	}
	if e.Iface != "" {
		text += " " + e.Iface
	}
	return text
}

// Link joins two interfaces: a cable, a switch that is no host, the ends of a pair, or a tunnel.
type Link struct {
	A     End      `json:"a"`
	B     End      `json:"b"`
	Found []string `json:"found"` // how: arp, ndp, fdb, lldp, tunnel, pair, ioam

	exact bool // both ends are interfaces that all packets of the link pass
}

// Ambiguity is what several claim, or what nothing decides.
type Ambiguity struct {
	Kind   Doubt  `json:"kind"`
	Value  string `json:"value"`
	Claims []End  `json:"claims"`
	More   int    `json:"more,omitempty"` // claims that are not listed
	// Unused is how many neighbours led to no link because of it.
	Unused int `json:"unused,omitempty"`
}

// Doubt is what is ambiguous.
type Doubt string

// The kinds of ambiguities.
const (
	DoubtMAC     Doubt = "mac"     // several hosts or namespaces have it: copied machines, or a virtual one (VRRP)
	DoubtAddress Doubt = "address" // likewise: anycast, private addresses
	DoubtNode    Doubt = "node_id" // likewise, of IOAM
	DoubtTunnel  Doubt = "tunnel"  // several tunnels of a host end at the same address
	DoubtBridges Doubt = "bridges" // these are one behind the other, and nothing says in which order
)

// Reasons are what each kind means, for people.
var Reasons = map[Doubt]string{
	DoubtMAC:     "link layer address of several: copied machines, or a virtual address (VRRP)",
	DoubtAddress: "address of several: anycast, or private addresses",
	DoubtNode:    "IOAM node id of several",
	DoubtTunnel:  "several tunnels between the same addresses",
	DoubtBridges: "bridges of which nothing says which comes first",
}

// Exact are the links whose ends are known well enough to order what hosts counted.
func (t *Topology) Exact() (list []Link) {
	for _, l := range t.all {
		if l.exact {
			list = append(list, l)
		}
	}
	return list
}

// Owner is the interface at which packets to an address come in, if one host has it.
func (t *Topology) Owner(a netip.Addr) (End, bool) {
	e, known := t.own[a]
	return e, known
}

// Node is the host that is an IOAM node; empty: none is, or several.
func (t *Topology) Node(id string) string { return t.nodes[id] }

// Host is what one says.
type Host struct {
	Name    string
	since   time.Time
	hidden  int
	ifaces  []*iface
	stacks  []*stack
	nodes   []string // IOAM
	follows [][2]string
	seen    []sighting
	pairs   [][2]*iface
}

// iface is an interface of a host.
type iface struct {
	stack                  *stack
	netns, name, kind, mac string
	addresses              []netip.Addr
	parent, master, peer   *iface
	ports                  []*iface
}

// stack is interfaces that lie on each other, or are ports of one bridge or bond, in one namespace.
type stack struct {
	host    *Host
	first   *iface
	macs    map[string]bool
	learned map[string]*iface // by link layer address, the port behind which it is; nil: behind several
}

// sighting is a neighbour on an interface.
type sighting struct {
	at         *iface
	mac        string
	addresses  []netip.Addr
	how        []string
	name, port string // as it announces itself
}

// Bounds of what a host may say.
const mostNodes = 1 << 16

// sharing are kinds of interfaces that are the same link as what they lie on; others are tunnels.
var sharing = map[string]bool{"vlan": true, "macvlan": true, "macvtap": true, "ipvlan": true, "ipvtap": true}

// bundling are kinds whose ports are one link.
var bundling = map[string]bool{"bond": true, "team": true}

const bridgeKind = "bridge"

// Of reads what a host says. What does not fit together is left out.
func Of(name string, g *timeline.Graph) *Host {
	h := &Host{Name: name, since: g.Since, hidden: g.Hidden}
	if len(g.Nodes) > mostNodes {
		h.hidden += len(g.Nodes) - mostNodes
	}
	r := reader{host: h, ifaces: map[string]*iface{}, others: map[string]*timeline.Node{}}
	for i := range g.Nodes[:min(len(g.Nodes), mostNodes)] {
		r.node(&g.Nodes[i])
	}
	for _, e := range g.Edges {
		r.edge(e)
	}
	r.stacks()
	for _, e := range g.Edges {
		r.see(e)
	}
	r.attach()
	return h
}
