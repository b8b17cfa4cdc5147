package verdict

import (
	"net/netip"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// point is a flow at one interface in one direction.
type point struct {
	key          pointKey
	port         flow.Port
	netns, iface string
	direction    flow.Direction
	hopLimit     uint8
	packets      uint64
	dropped      uint64 // of them, by the gate
	first, last  time.Time
	syn          bool // it began in the window
	begun        bool // later than counting at the interface, and than what was on its way before the window
	missing      bool // no record: nothing arrived
}

type pointKey struct {
	src, dst     netip.Addr
	sport, dport uint16
	proto        uint8
}

type segmentID struct {
	from, to      flow.Port
	fromDirection flow.Direction
}

type portDirection struct {
	port      flow.Port
	direction flow.Direction
}

// comparison finds segments from the points of each flow.
type comparison struct {
	w      *window
	wiring *flow.Wiring
	places map[portDirection]Place
	recent map[portDirection]map[pointKey]*query.Row // of the last interval
	cut    bool                                      // flows with few packets are not there
	least  uint64                                    // packets of the last row
	flows  map[pointKey][]*point
	keys   []pointKey
	bad    map[pointKey]bool    // flows that cannot be compared
	noFlow map[[2]string]uint64 // IP packets of an interface that are in no flow
	short  map[[2]string]bool   // interfaces of which not all packets are counted
	found  map[segmentID]*segment
}

func newComparison(w *window, places []Place, cut bool, last []query.Row) *comparison {
	c := &comparison{
		w: w, wiring: &flow.Wiring{}, places: map[portDirection]Place{}, cut: cut, flows: map[pointKey][]*point{}, bad: map[pointKey]bool{},
		recent: map[portDirection]map[pointKey]*query.Row{}, found: map[segmentID]*segment{}, noFlow: map[[2]string]uint64{}, short: map[[2]string]bool{},
	}
	if w.deps.Wiring != nil {
		if known := w.deps.Wiring(); known != nil {
			c.wiring = known
		}
	}
	for _, p := range places {
		c.places[portDirection{flow.Port{Netns: p.Netns, IfIndex: p.IfIndex}, p.Direction}] = p
	}
	for i := range last {
		at := placeOf(&last[i])
		if c.recent[at] == nil {
			c.recent[at] = map[pointKey]*query.Row{}
		}
		c.recent[at][keyOf(&last[i])] = &last[i]
	}
	counters, _ := w.counters(InNoFlow)
	for _, counter := range counters {
		c.noFlow[[2]string{counter.Where.Netns, counter.Where.Iface}] += counter.N
	}
	for _, condition := range w.deps.Conditions() {
		if condition.Coverage < w.Coverage {
			c.short[[2]string{condition.Where.Netns, condition.Where.Iface}] = true
		}
	}
	return c
}

func keyOf(r *query.Row) pointKey { return pointKey{r.Src, r.Dst, r.SrcPort, r.DstPort, r.Proto} }

func placeOf(r *query.Row) portDirection {
	return portDirection{flow.Port{Netns: r.Netns, IfIndex: r.IfIndex}, r.Direction}
}

// add takes a flow at an interface. What is copied, joined or encapsulated on its way has other
// counts behind.
func (c *comparison) add(r *query.Row) {
	c.least = r.Packets
	if r.Packets == 0 { // only something else was measured there
		return
	}
	key := keyOf(r)
	at := placeOf(r)
	counted, known := c.places[at]
	if r.Tunnel != flow.TunnelNone || r.Fragments > 0 || r.TTLMin != r.TTLMax || !unicast(r.Dst) || !known {
		c.bad[key] = true
		return
	}
	p := &point{
		key: key, port: at.port, netns: r.Netns, iface: r.Iface, direction: r.Direction, hopLimit: r.TTLMax,
		packets: r.Packets, dropped: min(r.Dropped, r.Packets), first: r.First, last: r.Last, syn: r.TCPFlags&synFlag != 0,
	}
	p.begun = r.First.After(counted.Since) && r.First.After(c.w.from.Add(mayBeOnItsWay))
	if c.flows[key] == nil {
		c.keys = append(c.keys, key)
	}
	c.flows[key] = append(c.flows[key], p)
}

// segments compares each flow.
func (c *comparison) segments() []*segment {
	for _, key := range c.keys {
		points := c.flows[key]
		if c.bad[key] || c.cut && c.largest(points) < 2*c.least {
			continue
		}
		for _, from := range points {
			switch {
			case from.direction == flow.Egress:
				c.link(from, points)
			default:
				c.host(from, points)
			}
		}
	}
	return sorted(c.found)
}

func (c *comparison) largest(points []*point) (most uint64) {
	for _, p := range points {
		most = max(most, p.packets)
	}
	return most
}

// link is what follows from a packet that left: it arrives at the other end of a veth pair, or at
// the only interface elsewhere at which it has the same hop limit.
func (c *comparison) link(from *point, points []*point) {
	if peer, wired := c.wiring.Peers[from.port]; wired {
		at := portDirection{peer, flow.Ingress}
		counted, known := c.places[at]
		if !known {
			c.elsewhere(from, points)
			return
		}
		to := pick(points, func(p *point) bool {
			return p.port == peer && p.direction == flow.Ingress && p.hopLimit == from.hopLimit
		})
		if to == nil {
			to = &point{key: from.key, port: peer, netns: counted.Netns, iface: counted.Iface, direction: flow.Ingress, missing: true}
		}
		c.join(from, to)
		return
	}
	c.elsewhere(from, points)
}

// elsewhere is a link that nothing is known of.
func (c *comparison) elsewhere(from *point, points []*point) {
	unwired := func(p *point, d flow.Direction) bool {
		if p.direction != d || p.hopLimit != from.hopLimit {
			return false
		}
		peer, wired := c.wiring.Peers[p.port]
		_, known := c.places[portDirection{peer, flow.Ingress}]
		return !wired || !known
	}
	var ends []*point
	leaving := 0
	for _, p := range points {
		if unwired(p, flow.Egress) {
			leaving++
		}
		if unwired(p, flow.Ingress) {
			ends = append(ends, p)
		}
	}
	if leaving == 1 && len(ends) == 1 && ends[0].netns != from.netns {
		c.join(from, ends[0])
	}
}

// host is what follows from a packet that arrived: it leaves the same namespace, with the hop limit
// one less where it is routed. Interfaces below another one send the same packets again.
func (c *comparison) host(from *point, points []*point) {
	var out []*point
	for _, p := range points {
		if p.netns != from.netns {
			continue
		}
		switch {
		case p.direction == flow.Ingress && p.hopLimit == from.hopLimit && (p.packets > from.packets || p.packets == from.packets && p.port.IfIndex < from.port.IfIndex):
			return // another one stands for both
		case p.direction == flow.Egress && (p.hopLimit == from.hopLimit || p.hopLimit+1 == from.hopLimit):
			out = append(out, p)
		}
	}
	top := slices.DeleteFunc(slices.Clone(out), func(p *point) bool {
		return slices.ContainsFunc(out, func(o *point) bool { return slices.Contains(c.wiring.Uppers[p.port], o.port) })
	})
	if len(top) == 0 {
		return
	}
	to := *top[0]
	for _, p := range top[1:] { // a copy for each port of a bridge, or a share for each path
		to.packets += p.packets
		to.begun = to.begun && p.begun
	}
	passed := *from
	passed.packets -= from.dropped
	c.join(&passed, &to)
}

// join compares both ends of a segment.
func (c *comparison) join(from, to *point) {
	if !c.comparable(from, to) {
		return
	}
	id := segmentID{from.port, to.port, from.direction}
	s := c.found[id]
	if s == nil {
		s = &segment{hosts: map[netip.Addr]bool{}, losers: map[netip.Addr]bool{}, noFlow: c.noFlow[[2]string{to.netns, to.iface}]}
		c.found[id] = s
	}
	s.add(from, to, to.first.Sub(from.first), !to.missing && from.begun && (from.syn || from.packets == to.packets), c.underway(from))
}

// comparable reports whether both interfaces counted all of the flow that is compared.
func (c *comparison) comparable(from, to *point) bool {
	for _, p := range []*point{from, to} {
		if c.short[[2]string{p.netns, p.iface}] {
			return false
		}
		counted := c.places[portDirection{p.port, p.direction}]
		if counted.Since.After(c.w.from) && !from.first.After(counted.Since) {
			return false
		}
	}
	return true
}

// underway is how many of the packets that left last may not have arrived yet.
func (c *comparison) underway(from *point) uint64 {
	row := c.recent[portDirection{from.port, from.direction}][from.key]
	if row == nil || row.Last.Before(c.w.to.Add(-mayBeOnItsWay)) {
		return 0
	}
	over := max(row.Last.Sub(row.First), mayBeOnItsWay)
	return 1 + uint64(float64(row.Packets)*float64(mayBeOnItsWay)/float64(over))
}

func pick(points []*point, is func(*point) bool) *point {
	if i := slices.IndexFunc(points, is); i >= 0 {
		return points[i]
	}
	return nil
}

// synFlag is that of TCP.
const synFlag = 1 << 1
