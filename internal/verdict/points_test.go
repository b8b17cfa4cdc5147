package verdict

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

var (
	base = time.Unix(5000, 0)
	src  = netip.MustParseAddr("192.0.2.1")
	dst  = netip.MustParseAddr("198.51.100.1")
)

// at is a flow at an interface of a namespace; its index is the number of the name.
func at(netns, iface string, d flow.Direction, limit uint8, packets uint64, change ...func(*query.Row)) query.Row {
	r := query.Row{Record: flow.Record{
		Netns: netns, Iface: iface, IfIndex: uint32(iface[len(iface)-1] - '0'), Direction: d, Family: 4, Proto: 17, Src: src, Dst: dst, SrcPort: 5, DstPort: 6,
		TTLMin: limit, TTLMax: limit, Counters: flow.Counters{Packets: packets}, First: base.Add(time.Second), Last: base.Add(5 * time.Second),
	}}
	for _, f := range change {
		f(&r)
	}
	return r
}

const (
	in  = flow.Ingress
	out = flow.Egress
)

// port is an interface by its name.
func port(netns string, index uint32) flow.Port { return flow.Port{Netns: netns, IfIndex: index} }

// TestSegments: between which interfaces packets are lost, by hop limit and wiring; and what cannot
// be compared is not.
func TestSegments(t *testing.T) {
	veth := map[flow.Port]flow.Port{port("a", 1): port("r", 2), port("r", 2): port("a", 1)}
	late := func(r *query.Row) { r.Last = base.Add(10*time.Second - time.Millisecond) }
	for _, c := range []struct {
		name   string
		rows   []query.Row
		peers  map[flow.Port]flow.Port
		uppers map[flow.Port][]flow.Port
		since  map[string]time.Duration // of an interface, after base; else before it
		want   map[string]uint64        // lost, by segment
	}{
		{
			"veth",
			[]query.Row{at("a", "e1", out, 64, 100), at("r", "w2", in, 64, 90)},
			veth, nil, nil,
			map[string]uint64{"a/e1 r/w2": 10},
		},
		{"nothing arrives", []query.Row{at("a", "e1", out, 64, 100)}, veth, nil, nil, map[string]uint64{"a/e1 r/w2": 100}},
		{
			"router",
			[]query.Row{at("r", "w2", in, 64, 100), at("r", "e3", out, 63, 60)},
			nil, nil, nil,
			map[string]uint64{"r/w2 r/e3": 40},
		},
		{
			"unknown link",
			[]query.Row{at("r", "e3", out, 63, 100), at("b", "w4", in, 63, 70)},
			nil, nil, nil,
			map[string]uint64{"r/e3 b/w4": 30},
		},
		{
			"chain", []query.Row{
				at("a", "e1", out, 64, 100), at("r", "w2", in, 64, 100), at("r", "e3", out, 63, 100), at("b", "w4", in, 63, 99),
			}, veth, nil, nil, map[string]uint64{"a/e1 r/w2": 0, "r/w2 r/e3": 0, "r/e3 b/w4": 1},
		},
		{
			"ports of a bridge",
			[]query.Row{at("r", "p1", in, 64, 100), at("r", "p2", out, 64, 100), at("r", "p3", out, 64, 2)},
			nil, nil, nil,
			map[string]uint64{"r/p1 r/p2": 0},
		},
		{
			"two paths",
			[]query.Row{at("r", "w2", in, 64, 100), at("r", "e3", out, 63, 50), at("r", "e4", out, 63, 50)},
			nil, nil, nil,
			map[string]uint64{"r/w2 r/e3": 0},
		},
		{
			"a VLAN on the way out",
			[]query.Row{at("r", "w2", in, 64, 100), at("r", "v3", out, 63, 80), at("r", "e4", out, 63, 80)},
			nil,
			map[flow.Port][]flow.Port{port("r", 4): {port("r", 3)}},
			nil,
			map[string]uint64{"r/w2 r/v3": 20},
		},
		{
			"a VLAN on the way in",
			[]query.Row{at("r", "e1", in, 64, 100), at("r", "v2", in, 64, 100), at("r", "e3", out, 63, 80)},
			nil, nil, nil,
			map[string]uint64{"r/e1 r/e3": 20},
		},
		{
			"a rule of the gate",
			[]query.Row{at("r", "w2", in, 64, 100, func(r *query.Row) { r.Dropped = 40 }), at("r", "e3", out, 63, 60)},
			nil, nil, nil,
			map[string]uint64{"r/w2 r/e3": 0},
		},
		{"local delivery", []query.Row{at("b", "e1", in, 64, 100), at("b", "e2", in, 60, 1)}, nil, nil, nil, nil},
		{
			"copies on several hosts", []query.Row{at("r", "e3", out, 63, 100), at("b", "w4", in, 63, 10), at("c", "w5", in, 63, 10)}, nil, nil, nil, nil,
		},
		{"another hop limit", []query.Row{at("r", "e3", out, 63, 100), at("b", "w4", in, 60, 10)}, nil, nil, nil, nil},
		{
			"changing hop limits",
			[]query.Row{at("a", "e1", out, 64, 100, func(r *query.Row) { r.TTLMin = 60 }), at("r", "w2", in, 64, 90)},
			veth, nil, nil, nil,
		},
		{
			"fragments", []query.Row{at("a", "e1", out, 64, 100, func(r *query.Row) { r.Fragments = 1 }), at("r", "w2", in, 64, 90)}, veth, nil, nil, nil,
		},
		{
			"tunnel",
			[]query.Row{at("a", "e1", out, 64, 100, func(r *query.Row) { r.Tunnel = flow.TunnelGRE }), at("r", "w2", in, 64, 90)},
			veth, nil, nil, nil,
		},
		{
			"multicast", []query.Row{at("a", "e1", out, 64, 100, func(r *query.Row) { r.Dst = netip.MustParseAddr("224.0.0.5") })}, veth, nil, nil, nil,
		},
		{
			"attached later",
			[]query.Row{at("a", "e1", out, 64, 100), at("r", "w2", in, 64, 90)},
			veth, nil,
			map[string]time.Duration{"r/w2": 2 * time.Second},
			nil,
		},
		{
			"attached before the flow",
			[]query.Row{at("a", "e1", out, 64, 100), at("r", "w2", in, 64, 90)},
			veth, nil,
			map[string]time.Duration{"r/w2": time.Second / 2},
			map[string]uint64{"a/e1 r/w2": 10},
		},
		{"on the way", []query.Row{at("a", "e1", out, 64, 100, late), at("r", "w2", in, 64, 98)}, veth, nil, nil, map[string]uint64{"a/e1 r/w2": 0}},
	} {
		got := map[string]uint64{}
		for _, s := range segmentsOf(c.rows, &flow.Wiring{Peers: c.peers, Uppers: c.uppers}, c.since) {
			lost := s.lost
			if lost <= s.underway {
				lost = 0
			}
			got[place(s.from)+" "+place(s.to)] = lost
		}
		for name, lost := range c.want {
			if g, ok := got[name]; !ok || g != lost {
				t.Errorf("%s: %s loses %d (%v), want %d; all: %v", c.name, name, g, ok, lost, got)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// segmentsOf compares flows at interfaces that were attached to before base, or later.
func segmentsOf(rows []query.Row, wiring *flow.Wiring, since map[string]time.Duration, short ...Condition) []*segment {
	w := &window{
		Examiner: New(Deps{Ledger: NewLedger(), Wiring: func() *flow.Wiring { return wiring }, Conditions: func() []Condition { return short }}),
		ctx:      context.Background(), from: base, to: base.Add(10 * time.Second), Thresholds: Thresholds{Coverage: 0.99},
	}
	var places []Place
	add := func(netns, iface string, index uint32) {
		for _, d := range []flow.Direction{in, out} {
			at := base.Add(-time.Minute)
			if after, ok := since[netns+"/"+iface]; ok {
				at = base.Add(after)
			}
			places = append(places, Place{Netns: netns, Iface: iface, IfIndex: index, Direction: d, Since: at})
		}
	}
	add("r", "w2", 2)
	for i := range rows {
		add(rows[i].Netns, rows[i].Iface, rows[i].IfIndex)
	}
	c := newComparison(w, places, false, rows)
	for i := range rows {
		c.add(&rows[i])
	}
	return c.segments()
}

// TestShort: an interface that does not count all of its packets is not compared, whatever it counted.
func TestShort(t *testing.T) {
	rows := []query.Row{at("r", "w2", in, 64, 100), at("r", "e3", out, 63, 60)}
	for coverage, want := range map[float64]int{0: 0, 0.9: 0, 0.995: 1, 1: 1} {
		if got := segmentsOf(rows, &flow.Wiring{}, nil, Condition{Coverage: coverage, Where: Where{Netns: "r", Iface: "e3"}}); len(got) != want {
			t.Errorf("coverage %v: %d segments", coverage, len(got))
		}
	}
}
