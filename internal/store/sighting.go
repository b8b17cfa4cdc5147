package store

import (
	"math"
	"math/bits"
	"net/netip"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// sightings finds records of the same packets. A packet that this host forwards
// is seen where it arrives and where it leaves, and again at every bridge, bond,
// VLAN and veth end in between. It counts where it was seen first.
//
// Records of one flow (addresses, protocol and ports) are joined when packets can
// come from the place of one to the place of the other: through the IP stack of a
// network namespace, where the TTL must not have risen, or along the wiring. A
// record has no more repeated packets than the records before it can account for;
// the rest was seen there first. Flows whose addresses were translated differ and
// are never joined.
type sightings struct {
	wirings wirings
	idle    bool // nobody wants to know
	apart   bool // network namespaces are distinguished: a packet counts in each
	places  []place
	index   map[placeKey]uint32
	flows   []int32 // hash table with open addressing: one more than the first sighting of each; 0: free
	list    []sighting
	current []uint32 // places by link and direction, of the interval at hand
	scratch *scratch
}

// Rows without a sighting.
const (
	notMatched = -1 - iota
	notJoined  // unattributed: no addresses to join by
)

// place is one direction of an interface.
type place struct {
	port   flow.Port
	egress bool
	name   string // of the interface, with its namespace
}

type placeKey struct {
	link   link
	egress bool
}

// sighting is a flow at a place.
type sighting struct {
	first          *row // of its rows
	packets        uint64
	repeated       uint64 // of packets: seen before; what take has not taken yet
	fragments      uint32 // of packets, or the largest number
	place          uint32
	next           int32 // of the same flow; −1: none
	in, out        int32 // places where the flow came in and left; −1: this host
	ttlMin, ttlMax uint8
	tunnel         bool // in an encapsulation that was taken off
}

// fresh is the number of packets that were first seen there, until take is called.
func (x *sighting) fresh() uint64 { return x.packets - x.repeated }

// addFragments stops at the largest number.
func (x *sighting) addFragments(n uint64) {
	x.fragments = uint32(min(uint64(x.fragments)+n, math.MaxUint32))
}

// take returns how many packets of a row of the sighting are repeated. Rows of the
// interval come before those of the one before it, whose own predecessors are
// not known: what is missing there must not count in the interval.
func (x *sighting) take(packets uint64) uint64 {
	n := min(packets, x.repeated)
	x.repeated -= n
	return n
}

// newSightings joins nothing when it is idle.
func newSightings(sc *scratch, apart, idle bool) *sightings {
	return &sightings{apart: apart, idle: idle, index: map[placeKey]uint32{}, scratch: sc}
}

// resolveInterval calls each with the rows of an interval that match, in their order, and with
// the sighting of each; nil: none. Packets may have been seen first in the interval before it
// (nil: not known): an interval ends between two sightings.
func (s *sightings) resolveInterval(before, iv *interval, f filter.Filter, each func(int, *sighting)) {
	var r flow.Record
	var memory reports
	match := func(iv *interval, w *row) bool {
		if f.Empty() {
			return true
		}
		w.record(iv, &r, &memory)
		return f.Match(&r)
	}
	s.begin(iv)
	of := query.Empty(&s.scratch.seen, iv.rows.len())
	for i := range iv.rows.len() {
		n, w := int32(notMatched), iv.rows.at(i)
		if match(iv, w) {
			n = s.add(w)
		}
		of = append(of, n)
	}
	if before != nil && !s.idle {
		s.enter(before)
		for i := range before.rows.len() {
			if w := before.rows.at(i); s.known(w) && match(before, w) {
				s.addBefore(w)
			}
		}
	}
	s.resolve()
	for i, n := range of {
		switch {
		case n >= 0:
			each(i, &s.list[n])
		case n == notJoined:
			each(i, nil)
		}
	}
}

// begin forgets the sightings of other intervals, but not the places.
func (s *sightings) begin(iv *interval) {
	s.wirings = s.wirings[:0]
	s.enter(iv)
	if s.idle {
		return
	}
	n := 1 << bits.Len(uint(iv.rows.len()+iv.rows.len()/4))
	s.list, s.flows = query.Empty(&s.scratch.sightings, iv.rows.len()), query.Empty(&s.scratch.flows, n)[:n]
	clear(s.flows)
}

// find is where the first sighting of a flow is or belongs.
func (s *sightings) find(key flowKey) *int32 {
	mask := uint64(len(s.flows) - 1)
	at := key.hash() & mask
	for s.flows[at] != 0 && s.list[s.flows[at]-1].first.flowKey() != key {
		at = (at + 1) & mask
	}
	return &s.flows[at]
}

// enter looks up the places of an interval.
func (s *sightings) enter(iv *interval) {
	s.wirings.add(iv.wiring)
	s.current = s.current[:0]
	for _, l := range iv.links {
		for _, egress := range []bool{false, true} {
			k := placeKey{l, egress}
			n, ok := s.index[k]
			if !ok {
				n = uint32(len(s.places))
				s.index[k] = n
				name := l.iface
				if l.netns != "" {
					name = l.netns + "/" + name
				}
				s.places = append(s.places, place{port: flow.Port{Netns: l.netns, IfIndex: l.ifindex}, egress: egress, name: name})
			}
			s.current = append(s.current, n)
		}
	}
}

// add takes a row of the window, of the interval that was entered, and returns its
// sighting.
func (s *sightings) add(w *row) int32 {
	if w.unattributed || s.idle {
		return notJoined
	}
	head := s.find(w.flowKey())
	n, known, _ := s.merge(*head-1, w)
	if !known {
		s.list[n].next = *head - 1
		*head = n + 1
	}
	return n
}

// known reports whether the interval has the flow of a row.
func (s *sightings) known(w *row) bool { return !w.unattributed && *s.find(w.flowKey()) != 0 }

// addBefore takes a row of the interval before, once all rows of the interval were added: it
// matters only to flows that these have.
func (s *sightings) addBefore(w *row) {
	head := *s.find(w.flowKey())
	if n, known, last := s.merge(head-1, w); !known {
		s.list[last].next = n
	}
}

// merge adds a row to the sighting at its place among those of its flow, or makes one
// that is not among them yet; last is the last of them.
func (s *sightings) merge(head int32, w *row) (n int32, known bool, last int32) {
	at := s.current[2*w.link]
	if w.direction == flow.Egress {
		at = s.current[2*w.link+1]
	}
	tunnel := w.tunnel != flow.TunnelNone
	for n := head; n >= 0; n = s.list[n].next {
		if x := &s.list[n]; x.place == at && x.tunnel == tunnel {
			x.packets += w.Packets
			x.addFragments(w.Fragments)
			x.ttlMin, x.ttlMax = min(x.ttlMin, w.ttlMin), max(x.ttlMax, w.ttlMax)
			return n, true, n
		}
		last = n
	}
	n = int32(len(s.list))
	s.list = append(s.list, sighting{
		first: w, place: at, next: -1, in: -1, out: -1, packets: w.Packets, ttlMin: w.ttlMin, ttlMax: w.ttlMax, tunnel: tunnel,
	})
	s.list[n].addFragments(w.Fragments)
	return n, false, last
}

// leads reports whether packets may come from one sighting to the other. Those
// without a source address (DHCP, duplicate address detection) are not forwarded.
func (s *sightings) leads(a, b *sighting, hasSource bool) bool {
	from, to := &s.places[a.place], &s.places[b.place]
	switch {
	case s.apart && from.port.Netns != to.port.Netns:
		return false
	case !from.egress && to.egress:
		if from.port == to.port && a.tunnel == b.tunnel { // only a router sends it back
			return hasSource && b.ttlMin < a.ttlMax
		}
		return hasSource && from.port.Netns == to.port.Netns && b.ttlMin <= a.ttlMax
	case a.tunnel != b.tunnel && from.egress == to.egress && from.port.Netns == to.port.Netns:
		return a.tunnel != from.egress // it is taken off on the way in, put on on the way out
	}
	return s.wirings.pass(from, to)
}

// resolve finds out how many packets of each sighting were seen before.
func (s *sightings) resolve() {
	for _, head := range s.flows {
		if head != 0 {
			if s.alone(&s.list[head-1]) {
				continue
			}
			src := netip.AddrFrom16(s.list[head-1].first.src)
			s.resolveFlow(head-1, !src.Unmap().IsUnspecified())
		}
	}
}

// alone resolves a sighting that is the only one of its flow, as most are; false: it is not.
func (s *sightings) alone(x *sighting) bool {
	if x.next >= 0 {
		return false
	}
	if x.in = int32(x.place); s.places[x.place].egress {
		x.in, x.out = -1, int32(x.place)
	}
	return true
}

// maxJoined is how many sightings of a flow are joined; others count as the first.
const maxJoined = 64

func (s *sightings) resolveFlow(head int32, hasSource bool) {
	var of [maxJoined]*sighting
	n := 0
	for i := head; i >= 0; i = s.list[i].next {
		if n < maxJoined {
			of[n] = &s.list[i]
			n++
		}
	}
	flow := of[:n]
	var after, before [maxJoined]uint64 // sightings next to each, as bits
	for i, a := range flow {
		for j, b := range flow {
			if i != j && s.leads(a, b, hasSource) {
				after[i] |= 1 << j
				before[j] |= 1 << i
			}
		}
	}
	var ancestors [maxJoined]uint64
	all := uint64(1)<<n - 1
	for done := uint64(0); done != all; {
		i := s.nextResolved(flow, before[:n], done, all)
		for b := before[i] & done; b != 0; b &= b - 1 {
			j := bits.TrailingZeros64(b)
			ancestors[i] |= ancestors[j] | 1<<j
		}
		flow[i].repeated = repeatedOf(flow, i, before[i]&done, ancestors[i])
		done |= 1 << i
	}
	s.passages(flow, after[:n])
}

// nextResolved chooses a sighting with nothing unresolved before it. In a circle
// (a pair in one namespace) there is none: then the earliest that packets are known
// to come to, else the earliest of all.
func (s *sightings) nextResolved(flow []*sighting, before []uint64, done, all uint64) int {
	var reached uint64
	for rest := all &^ done; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		if before[i]&^done == 0 {
			return i
		}
		if before[i]&done != 0 {
			reached |= 1 << i
		}
	}
	if reached == 0 {
		reached = all &^ done
	}
	return s.earliest(flow, reached)
}

// maxFragments is into how many fragments a router cuts a packet of 64 KiB at the
// MTU of Ethernet: each but the first adds to the packets that leave.
const maxFragments = 45

// repeatedOf is how many packets of a sighting can have come from those next to it,
// and from where they were first seen.
func repeatedOf(flow []*sighting, i int, next, ancestors uint64) uint64 {
	var packets, fresh, fragments uint64
	for b := ancestors; b != 0; b &= b - 1 {
		j := bits.TrailingZeros64(b)
		fresh += flow[j].fresh()
		if next&(1<<j) != 0 {
			packets += flow[j].packets
			fragments += uint64(flow[j].fragments)
		}
	}
	n := min(packets, fresh)
	if f := uint64(flow[i].fragments); f > fragments { // cut on the way
		n += min(f-fragments, n*(maxFragments-1))
	}
	return min(n, flow[i].packets)
}

// reach is what can be come to from a set.
func reach(from uint64, after []uint64) uint64 {
	reached := from
	for next := from; next != 0; {
		i := bits.TrailingZeros64(next)
		next &^= 1 << i
		next |= after[i] &^ reached
		reached |= after[i]
	}
	return reached
}

// earliest chooses from a circle: the highest TTL, then what leaves, as packets
// that begin here do.
func (s *sightings) earliest(flow []*sighting, among uint64) int {
	best := -1
	for i, x := range flow {
		if among&(1<<i) == 0 {
			continue
		}
		if best < 0 || x.ttlMax > flow[best].ttlMax ||
			x.ttlMax == flow[best].ttlMax && s.places[x.place].egress && !s.places[flow[best].place].egress {
			best = i
		}
	}
	return best
}

// passages finds where the packets of each sighting came in and where they left;
// −1: they began or ended at this host. Repeated ones came in where the sighting
// before them that saw most packets first says.
func (s *sightings) passages(flow []*sighting, after []uint64) {
	var most [maxJoined]uint64
	for i, x := range flow {
		fresh := x.fresh()
		if x.repeated > 0 && fresh == 0 {
			continue
		}
		in, reached := s.firstIn(x), reach(1<<i, after)
		out := s.wayOut(flow, reached, after, s.places[x.place].port.Netns)
		if x.out = out; x.repeated == 0 {
			x.in = in
		}
		for j, y := range flow {
			if j == i || reached&(1<<j) == 0 || y.repeated == 0 || fresh <= most[j] {
				continue
			}
			if y.in, most[j] = in, fresh; y.fresh() == 0 {
				y.out = out
			}
		}
	}
}

// firstIn is where packets came in that were first seen at a sighting.
func (s *sightings) firstIn(x *sighting) int32 {
	if s.places[x.place].egress {
		return -1
	}
	return int32(x.place)
}

// wayOut is the last place at which packets leave among those reached: of this
// host, else of the namespace they were first seen in. Most packets decide.
func (s *sightings) wayOut(flow []*sighting, reached uint64, after []uint64, home string) int32 {
	best, bestLast := -1, false
	for i, x := range flow {
		p := &s.places[x.place]
		last := after[i] == 0
		if reached&(1<<i) == 0 || !p.egress || !last && p.port.Netns != home {
			continue
		}
		better := best < 0 || last && !bestLast
		if !better && last == bestLast {
			b := flow[best]
			better = x.packets > b.packets || x.packets == b.packets && p.name < s.places[b.place].name
		}
		if better {
			best, bestLast = i, last
		}
	}
	if best < 0 {
		return -1
	}
	return int32(flow[best].place)
}

// name of a place; empty: this host.
func (s *sightings) name(at int32) string {
	if at < 0 {
		return ""
	}
	return s.places[at].name
}
