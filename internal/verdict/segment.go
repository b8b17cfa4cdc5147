package verdict

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/order"
)

// A segment is the way between two interfaces on which the same flows are seen one after the
// other: a link, or a host that forwards. What leaves one and does not arrive at the next is lost
// there, to the packet, without marks. The hop limit tells the order (points.go).
type segment struct {
	from, to *point // those of the largest flow
	packets  uint64 // seen at from
	lost     uint64 // of them, not seen at to
	underway uint64 // of them, which may still have been on the way when the window ended
	ended    share  // those of flows of which nothing was on the way then
	noFlow   uint64 // IP packets of to that are in no flow: dropped by the gate, taken by XDP
	flows    int
	losing   int // of the flows
	delays   []time.Duration
	hosts    map[netip.Addr]bool // of all flows
	losers   map[netip.Addr]bool // of those that lose packets
	top      uint64
}

// share is how many of how many packets are lost.
type share struct{ lost, packets uint64 }

// Bounds of what is read for segments.
const (
	mostRows      = 4000
	leastFlows    = 3                      // whose delays make a median
	mayBeOnItsWay = 100 * time.Millisecond // between two interfaces, in addition to what is measured
)

// flows by interface, those with the most packets first.
var byPoint = question{by: "flow", sort: "packets", limit: mostRows, everywhere: true}

// segments compares flows at their interfaces; note says why it does not.
func (w *window) segments() (list []*segment, note string, err error) {
	if w.compared {
		return w.between, w.unequal, nil
	}
	w.compared = true
	switch places := w.deps.Places(); {
	case w.deps.Sampling > 1:
		w.unequal = fmt.Sprintf("one packet in %d is counted, at each interface another one", w.deps.Sampling)
	case places == nil: // an analyzer compares hosts instead (Across)
	case !several(places):
		w.unequal = "packets are counted at one interface only"
	default:
		w.between, w.unequal, err = w.compare(places)
	}
	return w.between, w.unequal, err
}

// several reports whether packets are counted at more than one interface.
func several(places []Place) bool {
	for i := range places {
		if places[i].Netns != places[0].Netns || places[i].IfIndex != places[0].IfIndex {
			return true
		}
	}
	return false
}

func (w *window) compare(places []Place) ([]*segment, string, error) {
	a, err := w.query(w.from, w.to, byPoint)
	if err != nil {
		return nil, "", err
	}
	if a.Summed > 0 {
		return nil, fmt.Sprintf("%d records were too many to keep", a.Summed), nil
	}
	if a.Partial != "" || a.Lost > 0 {
		return nil, "not all records could be read", nil
	}
	last, err := w.query(w.to.Add(-1), w.to, byPoint)
	if err != nil {
		return nil, "", err
	}
	c := newComparison(w, places, a.Groups > len(a.Rows), last.Rows)
	for i := range a.Rows {
		r := &a.Rows[i]
		if r.Unattributed && r.Packets > 0 {
			return nil, "some packets are in no flow", nil
		}
		c.add(r)
	}
	return c.segments(), "", nil
}

// delay is the median.
func (s *segment) delay() time.Duration { return median(s.delays) }

// add adds a flow that passes the segment.
func (s *segment) add(from, to *point, late time.Duration, isNew bool, underway uint64) {
	s.flows++
	s.packets += from.packets
	s.underway += underway
	s.hosts[from.key.src], s.hosts[from.key.dst] = true, true
	if s.from == nil || from.packets > s.top {
		s.from, s.to, s.top = from, to, from.packets
	}
	if isNew && late >= 0 {
		s.delays = append(s.delays, late)
	}
	lost := from.packets - min(to.packets, from.packets)
	if underway == 0 {
		s.ended.lost += lost
		s.ended.packets += from.packets
	}
	if lost > 0 {
		s.lost += lost
		s.losing++
		s.losers[from.key.src], s.losers[from.key.dst] = true, true
	}
}

// name is how a segment is called: a host that forwards, or a link.
func (s *segment) name() string {
	if s.inside() {
		return fmt.Sprintf("The host of %s, between %s and %s,", hostName(s.from.netns), s.from.iface, s.to.iface)
	}
	return fmt.Sprintf("The link from %s to %s", place(s.from), place(s.to))
}

// inside reports whether it is a host that forwards.
func (s *segment) inside() bool { return s.from.direction == flow.Ingress }

func hostName(netns string) string {
	if netns == "" {
		return "the agent"
	}
	return "namespace " + netns
}

func place(p *point) string {
	if p.netns == "" {
		return p.iface
	}
	return p.netns + "/" + p.iface
}

func (s *segment) where() Where {
	return Where{Netns: s.from.netns, Iface: s.from.iface, Direction: s.from.direction.String(), ToNetns: s.to.netns, ToIface: s.to.iface}
}

// largest is the flow with the most packets.
func (s *segment) largest() *Flow {
	k := s.from.key
	return &Flow{flow.ProtoName(k.proto), k.src, k.sport, k.dst, k.dport}
}

// scope has the flows concerned: those that lose packets or, of a delay, all.
func (s *segment) scope(what string) scope {
	hosts := s.hosts
	if what == "loss" {
		hosts = s.losers
	}
	return scope{
		id: what + " " + place(s.from) + " " + s.from.direction.String() + " " + place(s.to), addresses: hosts, located: true, lost: s.lost,
		places: map[[2]string]bool{{s.from.netns, s.from.iface}: !s.inside()},
	}
}

func (s *segment) command(w *window) string {
	return w.command(question{filter: s.largest().filter(), by: "netns,iface,direction", sort: "packets", everywhere: true})
}

// filter matches the flow.
func (f *Flow) filter() string {
	text := fmt.Sprintf("%s and src %s and dst %s", f.Proto, f.Src, f.Dst)
	if f.SrcPort|f.DstPort != 0 && !isICMP(f.Proto) {
		text += fmt.Sprintf(" and sport %d and dport %d", f.SrcPort, f.DstPort)
	}
	return text
}

func isICMP(proto string) bool { return proto == "icmp" || proto == "icmpv6" }

// sorted has the segments with the most packets first.
func sorted(all map[segmentID]*segment) []*segment {
	var list []*segment
	for _, s := range all {
		list = append(list, s)
	}
	order.By(list, func(a, b *segment) int {
		switch {
		case a.packets != b.packets:
			return int(min(max(int64(b.packets)-int64(a.packets), -1), 1))
		case place(a.from) < place(b.from):
			return -1
		}
		return 1
	})
	return list
}
