package ioam

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// decapsulating is the node of the tests as the end of spaceA.
func decapsulating() Node {
	n := node()
	n.Namespaces[0].Remove = true
	return n
}

// pathFields are those of most traces here.
const pathFields = wire.HopLimitNodeID | wire.InterfaceIDs | wire.TimestampSeconds | wire.TimestampFraction | wire.TransitDelay

// traced is a trace that these nodes have filled, the first one first, with space for more.
func traced(typ wire.TraceType, incremental bool, free int, hops ...wire.Hop) *wire.Trace {
	t := &wire.Trace{Incremental: incremental, Namespace: spaceA, NodeLen: uint8(typ.NodeLen()), Type: typ, Remaining: uint8(free)}
	if !incremental {
		t.Data = make([]byte, 4*free)
	}
	for i := range hops {
		h := hops[len(hops)-1-i]
		h.Type = typ
		t.Data = append(t.Data, h.AppendTo(nil)...)
	}
	return t
}

// at is a hop with these ids, that received a packet then and kept it for so long.
func at(f wire.TimeFormat, id uint32, in, out uint16, received time.Time, delay time.Duration) wire.Hop {
	s, frac := f.Split(received)
	return wire.Hop{
		HopLimit: uint8(64 - id), NodeID: id, Ingress: in, Egress: out, Seconds: s, Fraction: frac, TransitDelay: uint32(delay),
		NodeIDWide: uint64(id) << 32, IngressWide: uint32(in) << 16, EgressWide: uint32(out) << 16, Snapshot: wire.Snapshot{Schema: wire.NoSchema},
	}
}

// walk is a sequence of node ids.
func walk(hops []Hop) (text string) {
	for _, h := range hops {
		text += fmt.Sprintf("%d:%d>%d ", h.NodeID, h.Ingress, h.Egress)
	}
	return text
}

func (h *host) drain(t testing.TB) {
	t.Helper()
	if err := h.Drain(func(*flow.Delta) {}); err != nil {
		t.Fatal(err)
	}
}

// The end of paths, in one host for each time format: loading it takes longer than the tests.
func TestDecapsulation(t *testing.T) {
	for _, f := range []wire.TimeFormat{wire.POSIX, wire.PTP, wire.NTP} {
		h := newHost(t, Config{Time: f, Transit: TransitTC}, decapsulating())
		run := func(name string, test func(*testing.T)) {
			t.Run(fmt.Sprint(name, " ", f), func(t *testing.T) { h.inside(t, func() { test(t) }) })
		}
		run("paths", func(t *testing.T) { h.countsPaths(t, f, rand.New(rand.NewPCG(3, uint64(f)))) })
		run("edge delays", func(t *testing.T) { h.delaysEdges(t, f) })
		if f == wire.POSIX {
			run("edges", func(t *testing.T) { h.countsEdges(t, rand.New(rand.NewPCG(5, 6))) })
			run("suspect edges", h.suspectsEdges)
		}
	}
}

// countsPaths checks that packets, bytes and times of each path are those of its traces.
func (h *host) countsPaths(t *testing.T, f wire.TimeFormat, random *rand.Rand) {
	type sum struct{ transit, link inband.Histogram }
	const routes, lengths = 4, 4
	want := map[string][]sum{}
	packets, bytes := map[string]uint64{}, map[string]uint64{}
	for range 600 {
		route, n := uint32(random.IntN(routes)), 2+random.IntN(lengths)
		now := time.Now().Truncate(time.Microsecond)
		var hops []wire.Hop
		var links []time.Duration
		for i := range n {
			delay, link := time.Duration(random.IntN(1<<(10+random.IntN(18)))), time.Duration(random.IntN(1<<(10+random.IntN(18))))
			link = link.Truncate(time.Microsecond)
			delay = delay.Truncate(time.Microsecond)
			hops = append(hops, at(f, route*100+uint32(i), 1, 2, now, delay))
			links = append(links, link)
			now = now.Add(delay + link)
		}
		frame := carrying(t, traced(pathFields, n%2 == 0, 0, hops...))
		if _, v := h.tc(t, "test_in", frame); v != verdictPass {
			t.Fatalf("verdict %d", v)
		}
		key := fmt.Sprint(route, n)
		if want[key] == nil {
			want[key] = make([]sum, n)
		}
		packets[key]++
		bytes[key] += uint64(len(frame))
		for i, s := range hops {
			want[key][i].transit.Add(uint64(s.TransitDelay))
			if i < n-1 {
				want[key][i].link.Add(uint64(links[i]))
			}
		}
		if random.IntN(50) == 0 {
			h.drain(t)
		}
	}
	h.drain(t)
	list := h.node.Paths()
	if len(list) != len(want) {
		t.Fatalf("%d paths, want %d", len(list), len(want))
	}
	for _, p := range list {
		key := fmt.Sprint(p.Hops[0].NodeID/100, len(p.Hops))
		if p.Packets != packets[key] || p.Bytes != bytes[key] || p.Namespace != spaceA || p.Type != pathFields || p.Relative() {
			t.Errorf("path %s: %d packets, %d bytes, want %d and %d", key, p.Packets, p.Bytes, packets[key], bytes[key])
		}
		if p.Source.String() != hostA || p.Destination.String() != hostB || time.Since(p.Last).Abs() > time.Minute || p.Last.Before(p.First) {
			t.Errorf("path %s: %v > %v, %v to %v", key, p.Source, p.Destination, p.First, p.Last)
		}
		for i, hop := range p.Hops {
			w := want[key][i]
			same(t, f, &hop.Transit.All, &w.transit)
			same(t, f, &hop.Link.All, &w.link)
			same(t, f, &hop.Link.Recent, &w.link)
		}
	}
}

// same compares times with the ones expected. The fraction of NTP is not exact.
func same(t *testing.T, f wire.TimeFormat, got *Times, want *inband.Histogram) {
	t.Helper()
	exact := flow.DelaysOf(want)
	if got.Count != want.Count || (time.Duration(got.Min)-time.Duration(want.Min)).Abs() > 2 || (time.Duration(got.Max)-time.Duration(want.Max)).Abs() > 2 ||
		(got.Mean()-want.Mean()).Abs() > 2 {
		t.Fatalf("%v: %+v, want %+v", f, got, exact)
	}
	if d := got.Delays(); f != wire.NTP && fmt.Sprint(d.Buckets) != fmt.Sprint(exact.Buckets) {
		t.Fatalf("%v: buckets %v, want %v", f, d.Buckets, exact.Buckets)
	}
}

// Paths differ where any id does, and only there; the hops are in the order of the packet.
func TestPathsDiffer(t *testing.T) {
	h := newHost(t, Config{Time: wire.POSIX, Transit: TransitTC}, decapsulating())
	h.inside(t, func() { h.tellsPaths(t) })
}

func (h *host) tellsPaths(t *testing.T) {
	now := time.Now()
	base := func() []wire.Hop {
		return []wire.Hop{at(wire.POSIX, 1, 65535, 12, now, 0), at(wire.POSIX, 2, 21, 22, now, 10), at(wire.POSIX, 4, 41, 42, now, 20)}
	}
	const wide = pathFields | wire.HopLimitNodeIDWide | wire.InterfaceIDsWide
	send := func(typ wire.TraceType, hops []wire.Hop) {
		t.Helper()
		if _, v := h.tc(t, "test_in", carrying(t, traced(typ, false, typ.NodeLen(), hops...))); v != verdictPass {
			t.Fatalf("verdict %d", v)
		}
	}
	variants := []func(*wire.Hop){
		func(h *wire.Hop) { h.NodeID++ }, func(h *wire.Hop) { h.Ingress++ }, func(h *wire.Hop) { h.Egress++ },
		func(h *wire.Hop) { h.NodeIDWide++ }, func(h *wire.Hop) { h.NodeIDWide += 1 << 32 },
		func(h *wire.Hop) { h.IngressWide++ }, func(h *wire.Hop) { h.EgressWide++ },
	}
	want := 1
	for range 3 {
		send(wide, base())
		same := base()
		for i := range same { // what does not identify a node
			same[i].HopLimit, same[i].HopLimitWide, same[i].Seconds, same[i].TransitDelay = 7, 8, 9, 10
		}
		send(wide, same)
	}
	for i := range 3 {
		for _, change := range variants {
			hops := base()
			change(&hops[i])
			send(wide, hops)
			want++
		}
	}
	swapped := base()
	swapped[0], swapped[1] = swapped[1], swapped[0]
	send(wide, swapped)
	send(wide&^wire.HopLimitNodeIDWide, base())
	send(wide, base()[:2])
	send(wide, nil)
	want += 4
	h.drain(t)
	list := h.node.Paths()
	if len(list) != want {
		t.Fatalf("%d paths, want %d", len(list), want)
	}
	ids := map[PathID]bool{}
	for _, p := range list {
		ids[p.ID] = true
	}
	if len(ids) != want {
		t.Errorf("%d ids of %d paths", len(ids), want)
	}
	// This node is the last hop, and the packets end at it.
	if got := walk(list[0].Hops); got != "1:65535>12 2:21>22 4:41>42 3:31>65535 " || list[0].Packets != 6 {
		t.Errorf("%d packets, hops %s", list[0].Packets, got)
	}
	if own := list[0].Hops[3]; own.Transit.All.Count != 0 || own.NodeIDWide != wideID {
		t.Errorf("own hop %+v", own)
	}
}
