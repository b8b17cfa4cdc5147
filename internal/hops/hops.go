// Package hops finds the way of a flow from what several hosts counted of it, and what each part of that way lost. Input:
// the records of one flow, of all hosts. Output: a Path: links and hosts in the order in which packets pass them, with the
// counts at both ends. Callers: the API of the analyzer.
//
// Packets need no mark. A router lowers the hop limit by one, so that points with a higher hop limit come first; at one hop
// limit, packets leave a host before they come in at the next one. Clocks of hosts decide only where both are equal, and the
// path then says that its order is not confirmed.
package hops

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/order"
)

// Point is a place where the packets of a flow were counted.
type Point struct {
	Node
	Iface     string         `json:"iface"`
	Direction flow.Direction `json:"-"` // the side of a part says it

	VLAN      uint16      `json:"vlan,omitempty"`
	InnerVLAN uint16      `json:"inner_vlan,omitempty"`
	Tunnel    flow.Tunnel `json:"-"` // packets of the flow are inside it here
	VNI       uint32      `json:"vni,omitempty"`

	TTLMin    uint8     `json:"ttl_min"`
	TTLMax    uint8     `json:"ttl_max"`
	Packets   uint64    `json:"packets"`
	Bytes     uint64    `json:"bytes"`
	Dropped   uint64    `json:"dropped,omitempty"`   // packets, among Packets, that rules of the gate dropped
	Fragments uint64    `json:"fragments,omitempty"` // packets, among Packets, that are IP fragments
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`

	// Again are further interfaces of the node on which the same packets were counted, as bridges and VLANs have them.
	Again []Point `json:"again,omitempty"`
}

// Node is a network namespace of a host.
type Node struct {
	Host  string `json:"host"`
	Netns string `json:"netns,omitempty"`
}

func (n Node) String() string {
	if n.Netns == "" {
		return n.Host
	}
	return n.Host + "/" + n.Netns
}

func (p *Point) String() string { return p.Node.String() + " " + p.Iface }

// End is an interface of a host at one end of a link.
type End struct {
	Node
	Iface string
}

// Link joins two interfaces, as somebody knows who has seen the topology.
type Link struct{ A, B End }

// Window is the time of which a host has records.
type Window struct{ From, To time.Time }

// Facts are what is known besides the records.
type Facts struct {
	Links   []Link            // not all need be known
	Windows map[string]Window // by host; a host without one has records of all the time
	Clock   time.Duration     // how far clocks of hosts may differ, and packets be under way
	// Expected is where packets come in that leave at an interface for an address, if that is the next host. Nil: it is not known.
	Expected func(from End, dst netip.Addr) (End, bool)
	// Named is the host of an IOAM node; empty: it is not known. Nil: none is.
	Named func(id string) string
}

// Points merges the records of one flow into points.
type Points struct {
	of     flow.Record
	points map[place]*Point
	nodes  string // of IOAM traces
	ways   bool   // these differ
}

type place struct {
	node            Node
	iface           string
	direction       flow.Direction
	vlan, innerVLAN uint16
	tunnel          flow.Tunnel
	vni             uint32
}

// Add takes a record. One of another flow is an error: its packets may be the same ones behind a translation of addresses,
// which counts do not say.
func (p *Points) Add(host string, r *flow.Record) error {
	if p.points == nil {
		p.of, p.points = *r, map[place]*Point{}
	}
	o := &p.of
	if r.Unattributed || o.Src != r.Src || o.Dst != r.Dst || o.Proto != r.Proto || o.SrcPort != r.SrcPort || o.DstPort != r.DstPort {
		return fmt.Errorf("a record of %s is of another flow: a path is of one flow in one direction", host)
	}
	p.trace(r)
	at := place{Node{host, r.Netns}, r.Iface, r.Direction, r.VLAN, r.InnerVLAN, r.Tunnel, r.VNI}
	one := p.points[at]
	if one == nil {
		one = &Point{
			Node: at.node, Iface: at.iface, Direction: at.direction, VLAN: at.vlan, InnerVLAN: at.innerVLAN, Tunnel: at.tunnel, VNI: at.vni,
			TTLMin: r.TTLMin, TTLMax: r.TTLMax, First: r.First, Last: r.Last,
		}
		p.points[at] = one
	}
	one.Packets, one.Bytes, one.Dropped, one.Fragments = one.Packets+r.Packets, one.Bytes+r.Bytes, one.Dropped+r.Dropped, one.Fragments+r.Fragments
	one.TTLMin, one.TTLMax = min(one.TTLMin, r.TTLMin), max(one.TTLMax, r.TTLMax)
	if r.First.Before(one.First) {
		one.First = r.First
	}
	if r.Last.After(one.Last) {
		one.Last = r.Last
	}
	return nil
}

// list are the points in an order that depends on them alone.
func (p *Points) list() (all []Point) {
	for _, one := range p.points {
		all = append(all, *one)
	}
	order.By(all, comparePoints)
	return all
}

func comparePoints(a, b Point) int {
	return cmp.Or(
		cmp.Compare(a.Host, b.Host), cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Iface, b.Iface), cmp.Compare(a.Direction, b.Direction),
		cmp.Compare(a.Tunnel, b.Tunnel), cmp.Compare(a.VNI, b.VNI), cmp.Compare(a.VLAN, b.VLAN), cmp.Compare(a.InnerVLAN, b.InnerVLAN),
	)
}
