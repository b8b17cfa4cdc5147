package store

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// seen is the flow of record(1, 1) at a place such as "eth0 in" or "blue/eth0 out",
// with a TTL. Numbers of interfaces are those of the names' last digits.
func seen(where string, ttl uint8, bytes uint64) flow.Record {
	r := record(1, 1, bytes)
	name, direction, _ := strings.Cut(where, " ")
	if netns, iface, ok := strings.Cut(name, "/"); ok {
		r.Netns, name = netns, iface
	}
	r.Iface, r.IfIndex = name, uint32(name[len(name)-1]-'0')
	if name == "lo" {
		r.IfIndex = 1
	}
	if r.Direction = flow.Egress; direction == "in" {
		r.Direction = flow.Ingress
	}
	r.TTLMin, r.TTLMax = ttl, ttl
	return r
}

func port(name string) flow.Port {
	netns, iface, ok := strings.Cut(name, "/")
	if !ok {
		netns, iface = "", name
	}
	if iface == "lo" {
		return flow.Port{Netns: netns, IfIndex: 1}
	}
	return flow.Port{Netns: netns, IfIndex: uint32(iface[len(iface)-1] - '0')}
}

// TestCountedOnce: packets count where they are seen first, whatever they pass
// after that; flows that have nothing to do with each other all count.
func TestCountedOnce(t *testing.T) {
	wiring := &flow.Wiring{
		Peers: map[flow.Port]flow.Port{
			port("lo"): port("lo"), port("veth5"): port("blue/eth2"), port("blue/eth2"): port("veth5"),
			port("veth6"): port("veth7"), port("veth7"): port("veth6"),
		},
		Uppers: map[flow.Port][]flow.Port{port("eth3"): {port("bond8"), port("br9")}, port("eth4"): {port("br9")}, port("bond8"): {port("br9")}},
	}
	for _, tt := range []struct {
		name    string
		records []flow.Record
		bytes   uint64 // counted
		transit string
	}{
		{"routed", []flow.Record{seen("eth0 in", 64, 100), seen("eth1 out", 63, 100)}, 100, "eth0 > eth1"},
		{"some of it dropped", []flow.Record{seen("eth1 out", 63, 70), seen("eth0 in", 64, 100)}, 100, "eth0 > eth1"},
		{"received", []flow.Record{seen("eth0 in", 64, 100)}, 100, "eth0 > "},
		{"sent", []flow.Record{seen("eth0 out", 64, 100)}, 100, " > eth0"},
		{"sent on two ways", []flow.Record{seen("eth0 out", 64, 100), seen("eth1 out", 64, 50)}, 150, " > eth0,  > eth1"},
		{"came in on two ways", []flow.Record{seen("eth0 in", 64, 100), seen("eth1 in", 61, 50), seen("eth2 out", 60, 150)}, 150, "eth0 > eth2, eth1 > eth2"},
		{"on a stick", []flow.Record{seen("eth0 in", 64, 100), seen("eth0 out", 63, 100)}, 100, "eth0 > eth0"},
		{"the TTL rose: another packet", []flow.Record{seen("eth0 in", 40, 100), seen("eth1 out", 64, 90)}, 190, " > eth1, eth0 > "},
		{"bridged", []flow.Record{seen("eth3 in", 64, 100), seen("eth4 out", 64, 100)}, 100, "eth3 > eth4"},
		{"flooded by a bridge", []flow.Record{seen("eth3 in", 64, 100), seen("eth4 out", 64, 100), seen("eth5 out", 64, 100)}, 100, "eth3 > eth4"},
		{"bridge port, bridge", []flow.Record{seen("eth4 in", 64, 100), seen("br9 in", 64, 100)}, 100, "eth4 > "},
		{"bridge, bridge port", []flow.Record{seen("br9 out", 64, 100), seen("eth4 out", 64, 100)}, 100, " > eth4"},
		{"port of a bond in a bridge", []flow.Record{seen("eth3 in", 64, 9), seen("bond8 in", 64, 9), seen("br9 in", 64, 9), seen("eth1 out", 63, 9)}, 9, "eth3 > eth1"},
		{"the bond is not watched", []flow.Record{seen("eth3 in", 64, 9), seen("br9 in", 64, 9)}, 9, "eth3 > "},
		{"from a container", []flow.Record{seen("blue/eth2 out", 64, 9), seen("veth5 in", 64, 9), seen("eth0 out", 63, 9)}, 9, " > eth0"},
		{"to a container", []flow.Record{seen("eth0 in", 64, 9), seen("veth5 out", 63, 9), seen("blue/eth2 in", 63, 9)}, 9, "eth0 > veth5"},
		{"two namespaces, same addresses", []flow.Record{seen("blue/eth2 out", 64, 9), seen("red/eth2 out", 64, 9)}, 18, " > blue/eth2,  > red/eth2"},
		{"in in one namespace, out in another", []flow.Record{seen("blue/eth3 in", 64, 9), seen("red/eth3 out", 63, 9)}, 18, " > red/eth3, blue/eth3 > "},
		{"loopback", []flow.Record{seen("lo out", 64, 9), seen("lo in", 64, 9)}, 9, " > lo"},
		{"a pair in one namespace", []flow.Record{seen("veth6 out", 64, 9), seen("veth7 in", 64, 9), seen("eth1 out", 63, 9)}, 9, " > eth1"},
		{"the pair amid the way", []flow.Record{seen("eth0 in", 64, 9), seen("veth6 out", 63, 9), seen("veth7 in", 63, 9), seen("eth1 out", 62, 9)}, 9, "eth0 > eth1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Default())
			s.SetWiring(wiring)
			fill(s, 0, 1, tt.records...)
			var all uint64
			for _, r := range tt.records {
				all += r.Bytes
			}
			for _, by := range []string{"conversation", "pair", "src", "transit", "in,out", "proto"} {
				a := ask(t, s, query.Plan{By: parseBy(t, by)})
				var rows, records uint64
				for _, w := range a.Rows {
					rows += w.Bytes
					records += w.Records
				}
				if rows != tt.bytes || a.Total.Bytes != tt.bytes || a.Total.Bytes+a.Repeated.Bytes != all {
					t.Errorf("by %s: %d bytes in rows, %d in total, %d repeated; want %d of %d", by, rows, a.Total.Bytes, a.Repeated.Bytes, tt.bytes, all)
				}
			}
			everything := ask(t, s, query.Plan{By: parseBy(t, "conversation"), Everywhere: true})
			flows := ask(t, s, query.Plan{})
			if everything.Rows[0].Bytes != all || everything.Total.Bytes != all || len(flows.Rows) != len(tt.records) || flows.Total.Bytes != tt.bytes {
				t.Errorf("everywhere %d bytes, want %d; %d flows of %d bytes", everything.Rows[0].Bytes, all, len(flows.Rows), flows.Total.Bytes)
			}
			var ways []string
			for _, w := range ask(t, s, query.Plan{By: parseBy(t, "in,out"), Sort: "in"}).Rows {
				ways = append(ways, w.In+" > "+w.Out)
			}
			slices.Sort(ways)
			if got := strings.Join(ways, ", "); got != tt.transit {
				t.Errorf("came in and left on %q, want %q", got, tt.transit)
			}
		})
	}
}

// TestRepeatedAtMost: what was seen before a record takes no more packets from it
// than were seen there, and the sums stay consistent in every grouping.
func TestRepeatedAtMost(t *testing.T) {
	many := func(where string, ttl uint8, packets uint64) flow.Record {
		r := seen(where, ttl, 100*packets)
		r.Packets, r.WireBytes, r.PayloadBytes = packets, 114*packets, 80*packets
		return r
	}
	fragments := func(r flow.Record, n uint64) flow.Record { r.Fragments = n; return r }
	without := func(r flow.Record) flow.Record { r.Src = netip.IPv4Unspecified(); return r }
	wiring := &flow.Wiring{
		Peers:  map[flow.Port]flow.Port{port("veth6"): port("veth7"), port("veth7"): port("veth6")},
		Uppers: map[flow.Port][]flow.Port{port("eth4"): {port("br9")}, port("eth5"): {port("br9")}},
	}
	for _, tt := range []struct {
		name    string
		records []flow.Record
		packets uint64 // counted
		transit string // with packets
	}{
		{"a foreign frame with our addresses", []flow.Record{many("eth0 out", 64, 8880), many("eth0 in", 64, 1)}, 8881, " > eth0 8880, eth0 >  1"},
		{"it comes in elsewhere", []flow.Record{many("eth0 out", 64, 8880), many("eth1 in", 64, 1)}, 8880, " > eth0 8879, eth1 > eth0 1"},
		{"it has a higher TTL", []flow.Record{many("eth0 in", 128, 1), many("eth0 out", 64, 8880)}, 8880, " > eth0 8879, eth0 > eth0 1"},
		{"no source address", []flow.Record{without(many("eth0 out", 64, 1000)), without(many("eth0 in", 128, 1)), without(many("eth1 in", 64, 3))}, 1004, " > eth0 1000, eth0 >  1, eth1 >  3"},
		{"no source address, over a pair", []flow.Record{without(many("veth6 out", 64, 9)), without(many("veth7 in", 64, 9))}, 9, " > veth6 9"},
		{"the second way in is not counted", []flow.Record{many("eth0 in", 64, 10), many("eth1 out", 63, 510)}, 510, " > eth1 500, eth0 > eth1 10"},
		{"a bridge port that is not counted", []flow.Record{many("eth4 in", 64, 10), many("br9 in", 64, 510), many("eth1 out", 63, 510)}, 510, "br9 > eth1 500, eth4 > eth1 10"},
		{"a bridge and our own", []flow.Record{many("eth4 in", 64, 10), many("br9 in", 64, 10), many("eth1 out", 63, 100)}, 100, " > eth1 90, eth4 > eth1 10"},
		{"our own lost in a pair, more after it", []flow.Record{many("veth6 out", 64, 100), many("veth7 in", 64, 10), many("eth1 out", 63, 100)}, 190, " > eth1 190"},
		{"some of both lost", []flow.Record{many("eth0 in", 64, 100), many("eth1 in", 64, 100), many("eth2 out", 63, 150)}, 200, "eth0 > eth2 100, eth1 > eth2 100"},
		{"cut into fragments", []flow.Record{many("eth0 in", 64, 100), fragments(many("eth1 out", 63, 300), 300)}, 100, "eth0 > eth1 100"},
		{"our own fragments", []flow.Record{many("eth0 in", 64, 1), fragments(many("eth1 out", 64, 300), 300)}, 256, " > eth1 255, eth0 > eth1 1"},
	} {
		s := New(Default())
		s.SetWiring(wiring)
		fill(s, 0, 1, tt.records...)
		var all flow.Counters
		for i := range tt.records {
			all.Add(&tt.records[i].Counters)
		}
		for _, by := range []string{"conversation", "src", "transit", "in,out", "proto", "iface", "iface,in,out", "flow"} {
			for _, everywhere := range []bool{false, true} {
				a := ask(t, s, query.Plan{By: parseBy(t, by), Everywhere: everywhere})
				var rows, sum flow.Counters
				for _, w := range a.Rows {
					rows.Add(&w.Counters)
				}
				sum = a.Total
				sum.Add(&a.Repeated)
				want, inRows := tt.packets, a.Total
				if everywhere {
					want = all.Packets
				}
				if strings.HasPrefix(by, "iface") || by == "flow" {
					inRows = all
				}
				if a.Total.Packets != want || a.Total.Bytes != 100*want || rows != inRows || sum != all {
					t.Errorf("%s, by %s, everywhere %t: %+v in rows, %+v in total, %+v repeated; want %d of %+v", tt.name, by, everywhere, rows, a.Total, a.Repeated, want, all)
				}
			}
		}
		var ways []string
		for _, w := range ask(t, s, query.Plan{By: parseBy(t, "transit"), Sort: "in"}).Rows {
			ways = append(ways, fmt.Sprintf("%s > %s %d", w.In, w.Out, w.Packets))
		}
		slices.Sort(ways)
		if got := strings.Join(ways, ", "); got != tt.transit {
			t.Errorf("%s: came in and left on %q, want %q", tt.name, got, tt.transit)
		}
	}
}

// TestTranslatedFlowsAreTwo: NAT changes addresses or ports, and what is not the
// same flow is not joined, even if all else is the same.
func TestTranslatedFlowsAreTwo(t *testing.T) {
	s := New(Default())
	inside, address, ports := seen("eth0 in", 64, 100), seen("eth1 out", 63, 100), seen("eth1 out", 63, 100)
	address.Src = record(7, 1, 0).Src
	ports.SrcPort++
	fill(s, 0, 1, inside, address, ports)
	if a := ask(t, s, query.Plan{By: parseBy(t, "transit")}); len(a.Rows) != 3 || a.Total.Bytes != 300 || a.Repeated.Bytes != 0 {
		t.Errorf("%d rows, total %+v, repeated %+v", len(a.Rows), a.Total, a.Repeated)
	}
}

// TestCountedOnceOverIntervals: an interval may end while packets are between two
// interfaces, for queries with and without a window and for followers.
func TestCountedOnceOverIntervals(t *testing.T) {
	s := New(Default())
	fill(s, 0, 1, seen("eth0 in", 64, 100))
	followed := make(chan query.Answer, 1)
	begun := s.view()
	fill(s, 1, 2, seen("eth1 out", 63, 100))
	v := s.view()
	e := ended{before: v.intervals[0], interval: v.intervals[1]}
	q := query.Plan{By: parseBy(t, "conversation")}
	if err := q.Check(); err != nil {
		t.Fatal(err)
	}
	followed <- e.Answer(q)
	for name, a := range map[string]query.Answer{
		"all":      ask(t, s, q),
		"since":    ask(t, s, query.Plan{By: q.By, Since: at(1)}),
		"followed": <-followed,
	} {
		want := uint64(0)
		if name == "all" {
			want = 100
		}
		if a.Total.Bytes != want || a.Total.Bytes+a.Repeated.Bytes != 100+want {
			t.Errorf("%s: total %d, repeated %d", name, a.Total.Bytes, a.Repeated.Bytes)
		}
	}
	if begun.sequence != 1 {
		t.Errorf("sequence %d", begun.sequence)
	}
}

// TestOnceKeepsWhatWasMeasured: what only the second interface measured is in the
// row, and a filter that leaves one interface counts there.
func TestOnceKeepsWhatWasMeasured(t *testing.T) {
	s := New(Default())
	in, out := seen("eth0 in", 64, 100), seen("eth1 out", 63, 100)
	out.RTT.Responder = 5
	fill(s, 0, 1, in, out)
	by := parseBy(t, "conversation")
	if w := ask(t, s, query.Plan{By: by}).Rows[0]; w.Bytes != 100 || w.RTT.Responder != 5 || w.Records != 1 || w.RTTSeen != 1 {
		t.Errorf("row %+v", w)
	}
	chosen, err := filter.Parse("iface eth1")
	if err != nil {
		t.Fatal(err)
	}
	if a := ask(t, s, query.Plan{By: by, Filter: chosen}); a.Total.Bytes != 100 || a.Repeated.Bytes != 0 {
		t.Errorf("at eth1: %+v", a)
	}
	// By namespace a flow counts in each.
	s = New(Default())
	s.SetWiring(&flow.Wiring{Peers: map[flow.Port]flow.Port{port("blue/eth2"): port("veth5")}})
	fill(s, 0, 1, seen("blue/eth2 out", 64, 9), seen("veth5 in", 64, 9), seen("eth0 out", 63, 9))
	if a := ask(t, s, query.Plan{By: parseBy(t, "netns,conversation")}); len(a.Rows) != 2 || a.Rows[0].Bytes != 9 || a.Rows[1].Bytes != 9 {
		t.Errorf("by namespace: %+v", a.Rows)
	}
}

// BenchmarkOnce is a router's history: every flow on two interfaces.
func BenchmarkOnce(b *testing.B) {
	const flows = 60_000
	s := New(Default())
	var records []flow.Record
	for i := range flows {
		in, out := seen("eth0 in", 64, 100), seen("eth1 out", 63, 100)
		in.SrcPort, out.SrcPort = uint16(i), uint16(i)
		in.DstPort, out.DstPort = uint16(i>>16), uint16(i>>16)
		records = append(records, in, out)
	}
	fill(s, 0, 1, records...)
	for _, everywhere := range []bool{false, true} {
		b.Run(fmt.Sprintf("everywhere=%t", everywhere), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Query(context.Background(), query.Plan{By: query.By{Keys: []query.Key{{Name: "src", Bits4: 32, Bits6: 128}}}, Everywhere: everywhere}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
