// Package storetest draws records and plans for tests of engines. Output: few flows at few places, so that they meet, and plans about
// them. Callers: tests of the engines that keep what the memory had.
package storetest

import (
	"net/netip"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/flow/flowtest"
	"github.com/waymark-net/waymark/internal/query"
)

// Epoch is when the first interval begins.
var Epoch = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)

// At is n intervals of ten seconds after the epoch.
func At(n int) time.Time { return Epoch.Add(time.Duration(n) * 10 * time.Second) }

// SameAnswer compares what a user sees.
var SameAnswer = gocmp.Options{
	cmpopts.IgnoreUnexported(query.Row{}), cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
	gocmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
}

var places = []struct {
	iface, netns string
	index        uint32
	direction    flow.Direction
}{{"eth0", "", 2, flow.Ingress}, {"eth1", "", 3, flow.Egress}, {"eth1", "", 3, flow.Ingress}, {"eth2", "blue", 2, flow.Egress}, {"lo", "", 1, flow.Ingress}}

// DrawRecords are records of few flows at few places.
func DrawRecords(t *rapid.T) []flow.Record {
	n := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	records := make([]flow.Record, n("records", 12))
	for i := range records {
		p := places[n("place", len(places)-1)]
		r := flow.Record{
			Iface: p.iface, Netns: p.netns, IfIndex: p.index, Direction: p.direction, Family: 4,
			Src: netip.AddrFrom4([4]byte{10, 0, 0, byte(n("src", 2))}), Dst: netip.AddrFrom4([4]byte{10, 0, 1, byte(n("dst", 1))}),
			Proto: []uint8{6, 17, 1}[n("proto", 2)], SrcPort: []uint16{5000, 80}[n("sport", 1)], DstPort: []uint16{79, 80, 81, 8 << 8}[n("dport", 3)], VLAN: uint16(n("vlan", 1)),
			TOS: uint8(n("tos", 9)), TCPFlags: uint16(n("flags", 31)), TTLMin: 60, TTLMax: uint8(62 + n("ttl", 2)),
			Counters: flow.Counters{Packets: uint64(1 + n("packets", 8)), Bytes: uint64(1 + n("bytes", 5000)), WireBytes: 7, CEPackets: uint64(n("ce", 1))},
			First:    Epoch.Add(time.Duration(n("first", 1e9))), Initiator: flow.Initiator(n("initiator", 2)),
			RTT: flow.RTT{Responder: time.Duration(n("rtt", 9)), Initiator: time.Duration(n("rtt", 2))},
		}
		if n("family", 2) == 0 {
			r.Family, r.Src, r.Dst = 6, netip.AddrFrom16(r.Src.As16()), netip.MustParseAddr("2001:db8::1")
		}
		if n("turned", 2) == 0 {
			r.Src, r.Dst = r.Dst, r.Src
		}
		r.Last = r.First.Add(time.Duration(n("last", 1e9)))
		if n("unattributed", 9) == 0 {
			r.Unattributed, r.Src, r.Dst, r.SrcPort, r.DstPort = true, netip.Addr{}, netip.Addr{}, 0, 0
		}
		if n("marked", 3) == 0 {
			r.PDM, r.IOAM = flowtest.PDM(t), flowtest.IOAM(t)
		}
		if n("forwarded", 3) == 0 {
			r.Forwarded, r.Other, r.OtherIfIndex = r.Packets, []string{"eth0", "eth7"}[n("other", 1)], 7
		}
		if n("dropped", 3) == 0 {
			r.Dropped, r.DroppedBytes = 1, uint64(n("bytes", 99))
			r.Drop = &flow.Drop{Verdict: flow.Verdict(1 + n("verdict", 3)), Rule: uint32(n("rule", 2)), Text: []string{"", "drop udp"}[n("text", 1)]}
		}
		records[i] = r
	}
	return records
}

// Filters are of such records.
var Filters = []string{
	"", "tcp", "iface eth1", "dport 80", "src 10.0.0.1 or udp", "packets > 5 and not tcp", "src net 10.0.0.0/31", "net 2001:db8::/32",
	"not src net 0.0.0.0/0", "netns blue", "iface eth*", "tcp_flags syn+ack", "pdm", "not marked and vlan 1", "direction in", "unattributed", "port 79-80",
	"lost > 0", "server > 1us", "rtt > 1ns", "icmp", "ecn 1", "path *", "rtt_responder < 5ns or tos 3", "not (ioam or host 10.0.0.2)", "lost < 3", "drop_verdict limit", "drop_rule 1", "forwarded > 2", "other_iface eth7", "not other_iface eth0",
}

// DrawPlan is a plan over so many intervals.
func DrawPlan(t *rapid.T, intervals int) query.Plan {
	by, err := query.ParseBy(rapid.SampledFrom([]string{
		"flow", "src/24", "src/31/127,dport", "dport", "conversation", "peer", "in,out", "transit", "netns,pair", "proto,iface", "ioam.path", "service", "vlan,tos", "family",
		"pair,proto", "session", "peer_service,iface", "local_service", "conversation,src/24,dst/24",
	}).Draw(t, "by"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := filter.Parse(rapid.SampledFrom(Filters).Draw(t, "filter"))
	if err != nil {
		t.Fatal(err)
	}
	p := query.Plan{
		By: by, Filter: f,
		Sort:    rapid.SampledFrom([]string{"bytes", "packets", "wire_bytes", "rate", "records", "rtt_responder"}).Draw(t, "sort"),
		Reverse: rapid.Bool().Draw(t, "reverse"), Everywhere: rapid.Bool().Draw(t, "everywhere"), Limit: rapid.IntRange(0, 3).Draw(t, "limit"),
	}
	if rapid.Bool().Draw(t, "since") {
		p.Since = At(rapid.IntRange(0, intervals).Draw(t, "from"))
	}
	if rapid.Bool().Draw(t, "until") {
		p.Until = At(intervals + 1 + rapid.IntRange(0, 1).Draw(t, "to")).Add(-10 * time.Second)
		if !p.Until.After(p.Since) {
			p.Until = p.Since.Add(time.Second)
		}
	}
	if _, _, err := f.Split(by.Whole()); err != nil {
		p.Filter = filter.Filter{} // of records and of rows
	}
	if rapid.Bool().Draw(t, "named") {
		p.Sums = rapid.SampledFrom([][]string{{"bytes"}, {"packets", "bytes"}, {"ce_packets", "wire_bytes"}}).Draw(t, "sums")
	}
	if p.Sums != nil && p.Sort != "rate" && rapid.Bool().Draw(t, "measured") { // of times, a rate is
		p.Reads = []string{"rtt.responder_ns", "rtt.initiator_ns"}
	}
	if rapid.IntRange(0, 2).Draw(t, "step") == 0 {
		p.Step = time.Duration(rapid.IntRange(1, 3).Draw(t, "steps")) * 10 * time.Second
	}
	return p
}
