package hops

import (
	"cmp"
	"net/netip"
	"slices"
)

// Sight is what a node counted of a flow, at all its interfaces.
type Sight struct{ In, Out Side }

// Side is one direction of it. Of packets with different hop limits, those with the highest one are meant.
type Side struct {
	Seen    bool
	TTL     uint8
	Packets uint64
	First   int64 // when the first of them came, in ns since the Unix epoch
}

// Add adds what an interface counted.
func (s *Side) Add(ttl uint8, packets uint64, first int64) {
	switch {
	case !s.Seen || ttl > s.TTL:
		*s = Side{true, ttl, packets, first}
	case ttl == s.TTL:
		s.Packets += packets
		s.First = min(s.First, first)
	}
}

func (s *Side) at(level uint8) bool { return s.Seen && s.TTL == level }

// Copies reports whether a packet to an address may come to several hosts. Broadcasts to a subnet are not known from others.
func Copies(to netip.Addr) bool {
	return to.IsMulticast() || to == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// Sources are the numbers of the nodes that packets of a flow are counted at first, in their order. Several: each has a part of
// them. This is where Points.Find begins. Copies is that of the destination. Unsure: counts
// or clocks had to decide.
func Sources(seen []Sight, copies bool) (sources []int, unsure bool) {
	level := uint8(0)
	for i := range seen {
		level = max(level, seen[i].In.TTL, seen[i].Out.TTL)
	}
	var from, through, to []int
	for i := range seen {
		in, out := seen[i].In.at(level), seen[i].Out.at(level)
		switch {
		case in && out:
			through = append(through, i)
		case out:
			from = append(from, i)
		case in:
			to = append(to, i)
		}
	}
	switch {
	case len(from) > 0:
		return among(seen, from, append(through, to...), false)
	case len(through) > 0:
		return among(seen, through, to, true)
	case copies:
		return among(seen, to, nil, true)
	}
	return to, false // packets that come in with the highest hop limit passed none of the others before
}

// among are all of some nodes where these counted parts of what came to the next ones, and else the first one.
func among(seen []Sight, nodes, next []int, in bool) (list []int, unsure bool) {
	if len(nodes) == 1 {
		return nodes, false
	}
	side := func(i int) *Side {
		if in {
			return &seen[i].In
		}
		return &seen[i].Out
	}
	each, best := make([]uint64, len(nodes)), nodes[0]
	for k, i := range nodes {
		each[k] = side(i).Packets
		if cmp.Or(cmp.Compare(side(i).First, side(best).First), cmp.Compare(side(best).Packets, side(i).Packets)) < 0 {
			best = i
		}
	}
	if parallel(each, arrived(seen, nodes, next)) {
		return nodes, false
	}
	return []int{best}, true
}

// arrived is how many packets came to the next nodes; where these are not known, to those behind the next routers.
func arrived(seen []Sight, nodes, next []int) (sum uint64) {
	for _, i := range next {
		sum += seen[i].In.Packets
	}
	if sum > 0 {
		return sum
	}
	var all Side
	for i := range seen {
		if s := &seen[i].In; s.Seen && !slices.Contains(nodes, i) {
			all.Add(s.TTL, s.Packets, s.First)
		}
	}
	return all.Packets
}
