package ioam

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// PathID is the number of a path: equal hops have an equal one, on every host.
type PathID uint64

// String has twelve hexadecimal digits.
func (id PathID) String() string { return fmt.Sprintf("%012x", uint64(id)) }

// Path is a path that traces showed.
type Path struct {
	ID          PathID
	Namespace   uint16
	Type        wire.TraceType
	Overflow    bool // nodes had no space for their data: hops may be missing
	Iface       flow.Iface
	Source      netip.Addr // of the first packet
	Destination netip.Addr
	First, Last time.Time
	Packets     uint64
	Bytes       uint64
	Hops        []Hop // from the encapsulating node on
	// Reached is how many of these packets made before a node sent them back to this one (RFC 9322); the others are on the
	// way back. 0: packets came to their end.
	Reached int
	// Whole is the time from the first node to the last.
	Whole Measured
	// Unreported is a path of which no trace has come yet.
	Unreported bool
	nodes      string // as in flow records
	relative   bool   // the clocks of the first node and the last do not agree
}

// Hop is a node of a path.
type Hop struct {
	wire.Hop          // as in the first trace
	Transit  Measured // from its receipt of a packet to its sending
	// Link is the time to the next node, without this node's transit delay where that
	// is known: a difference between the clocks of two nodes.
	Link Measured
	// Relative says that the clocks of both ends of the link do not agree: only changes
	// of the times mean something.
	Relative bool
	// Drift is by how much the clock of the next node runs faster, as a share; 0: not known.
	Drift float64
}

// Measured are times since the path was seen first, and of the last one to two minutes.
type Measured struct {
	All    Times
	Recent Times
	older  Times // of the minute before
	newer  Times // of this minute
	minima minima
}

// recentFor is half of what Measured calls recent.
const recentFor = time.Minute

func (m *Measured) add(t *Times) {
	m.All.add(t)
	m.newer.add(t)
}

// turn begins another minute.
func (m *Measured) turn(now time.Time) {
	m.minima.add(now, &m.newer)
	m.older, m.newer = m.newer, Times{}
}

// recent gathers what is recent.
func (m *Measured) recent() {
	m.Recent = Times{}
	m.Recent.add(&m.older)
	m.Recent.add(&m.newer)
}

// each calls f for the times of the path in the order of the cells in the programs, which
// count hops from the newest on.
func (p *Path) each(f func(cell int, m *Measured)) {
	for i := range p.Hops {
		h := &p.Hops[len(p.Hops)-1-i]
		f(2*i, &h.Transit)
		if i > 0 {
			f(2*i-1, &h.Link)
		}
	}
	if n := len(p.Hops); n > 0 {
		f(2*n-1, &p.Whole)
	}
}

// identify fills what a trace says of the path.
func (p *Path) identify(t *wire.Trace, hops []wire.Hop) {
	p.Namespace, p.Type, p.Overflow, p.Unreported = t.Namespace, t.Type, t.Flags&wire.Overflow != 0, false
	for i, h := range hops {
		p.Hops[i].Hop = h
	}
	p.nodes = nodesOf(hops)
	id := fnv.New64a()
	word := func(v uint64) {
		_, _ = id.Write(binary.BigEndian.AppendUint64(nil, v)) // never fails
	}
	word(uint64(t.Namespace)<<32 | uint64(t.Type))
	if p.Overflow {
		word(1)
	}
	for _, h := range hops {
		word(uint64(h.NodeID)<<32 | uint64(h.Ingress)<<16 | uint64(h.Egress))
		word(h.NodeIDWide)
		word(uint64(h.IngressWide)<<32 | uint64(h.EgressWide))
	}
	p.ID = PathID(id.Sum64() >> 16)
}

// brief is the path in flow records.
func (p *Path) brief() flow.IOAMPath {
	return flow.IOAMPath{ID: flow.IOAMPathID(p.ID), Namespace: p.Namespace, Hops: uint8(len(p.Hops)), Nodes: p.nodes}
}

// nodesOf are the ids of nodes in short: 1-2-3.
func nodesOf(hops []wire.Hop) string {
	var names []string
	for _, h := range hops {
		switch {
		case h.Type.Has(wire.HopLimitNodeID) && h.NodeID != wire.Unavailable24:
			names = append(names, strconv.FormatUint(uint64(h.NodeID), 10))
		case h.Type.Has(wire.HopLimitNodeIDWide) && h.NodeIDWide != wire.Unavailable56:
			names = append(names, strconv.FormatUint(h.NodeIDWide, 16))
		default:
			names = append(names, "?")
		}
	}
	return strings.Join(names, "-")
}

// clone shares nothing that changes.
func (p *Path) clone() Path {
	own := *p
	own.Hops = slices.Clone(p.Hops)
	own.each(func(_ int, m *Measured) {
		m.recent()
		m.All.Buckets = slices.Clone(m.All.Buckets)
	})
	return own
}

// Nodes are the ids of its nodes, as in flow records.
func (p *Path) Nodes() string { return p.nodes }
