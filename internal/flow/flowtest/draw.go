// Package flowtest draws random parts of records for property tests. Input: a test.
// Output: values that probes could report. Only tests call it.
package flowtest

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
)

// Record is any record that a flow table may make.
func Record(t *rapid.T) flow.Record {
	u64 := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
	u32 := func(name string) uint32 { return rapid.Uint32().Draw(t, name) }
	u16 := func(name string) uint16 { return rapid.Uint16().Draw(t, name) }
	u8 := func(name string) uint8 { return rapid.Uint8().Draw(t, name) }
	moment := func(name string) time.Time { return time.Unix(0, rapid.Int64Range(1, 1<<62).Draw(t, name)) }
	r := flow.Record{
		Iface: rapid.String().Draw(t, "iface"), Netns: rapid.String().Draw(t, "netns"), IfIndex: u32("ifindex"),
		Direction: flow.Direction(u8("direction") & 1), Family: 4, Proto: u8("proto"),
		SrcPort: u16("sport"), DstPort: u16("dport"), VLAN: u16("vlan"), InnerVLAN: u16("inner"),
		Tunnel: flow.Tunnel(u8("tunnel")), VNI: u32("vni"), TOS: u8("tos"), TCPFlags: u16("flags"),
		FlowLabel: u32("label"), TTLMin: u8("ttl_min"), TTLMax: u8("ttl_max"),
		Counters: flow.Counters{Packets: u64("packets"), Bytes: u64("bytes"), PayloadBytes: u64("payload"), WireBytes: u64("wire"), Fragments: u64("fragments"), CEPackets: u64("ce"), Forwarded: u64("forwarded")}, First: moment("first"), Last: moment("last"),
		EndReason: flow.EndReason(u8("reason")), Unattributed: rapid.Bool().Draw(t, "unattributed"),
		RTT: flow.RTT{Responder: time.Duration(u32("responder")), Initiator: time.Duration(u32("initiator"))},
	}
	if rapid.Bool().Draw(t, "forwarded at XDP") {
		r.Other, r.OtherIfIndex = rapid.StringN(1, -1, -1).Draw(t, "other"), u32("other index")
	}
	if rapid.Bool().Draw(t, "marked") {
		r.PDM = PDM(t)
	}
	if rapid.Bool().Draw(t, "ioam") {
		r.IOAM = IOAM(t)
	}
	if rapid.IntRange(0, 3).Draw(t, "drops") == 0 {
		Drop(t, &r)
	}
	src, dst := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "src"), rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "dst")
	if rapid.Bool().Draw(t, "v6") {
		r.Family = 6
	} else {
		src, dst = src[:4], dst[:4]
	}
	if !r.Unattributed {
		r.Src, _ = netip.AddrFromSlice(src)
		r.Dst, _ = netip.AddrFromSlice(dst)
	}
	return r
}

// IOAM is what IOAM options may have reported of a flow.
func IOAM(t *rapid.T) *flow.IOAM {
	count := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
	i := &flow.IOAM{
		Packets: count("packets"), Changes: count("changes"), Received: count("received"), Lost: rapid.Int64().Draw(t, "lost"),
		Reordered: count("reordered"), Duplicates: count("duplicates"), Relative: rapid.Bool().Draw(t, "relative"),
	}
	if rapid.Bool().Draw(t, "traced") {
		i.IOAMPath = path(rapid.Uint64Range(1, 1<<48-1).Draw(t, "path"))
	}
	if rapid.Bool().Draw(t, "delays") {
		number := rapid.Uint64Range(1, 1<<40).Draw(t, "delays") // sums of it never are 0 again, which would say that there are none
		i.Delay = flow.Delays{Count: number, Sum: count("sum"), Min: count("min"), Max: count("max")}
	}
	return i
}

// path is the one with a number: equal numbers are of equal hops.
func path(id uint64) flow.IOAMPath {
	p := flow.IOAMPath{ID: flow.IOAMPathID(id), Namespace: uint16(id * 40503), Hops: uint8(1 + id%16)}
	nodes := make([]string, 1+id%10)
	for n := range nodes {
		nodes[n] = strconv.FormatUint(id*uint64(n+1)%100_000_000, 10)
	}
	p.Nodes = strings.Join(nodes, "-")
	return p
}

// Drop adds to a record that rules dropped packets of it.
func Drop(t *rapid.T, r *flow.Record) {
	r.Dropped, r.DroppedBytes = rapid.Uint64Min(1).Draw(t, "dropped"), rapid.Uint64().Draw(t, "dropped bytes")
	r.Drop = &flow.Drop{Verdict: flow.Verdict(rapid.IntRange(1, 4).Draw(t, "verdict"))}
	if rapid.Bool().Draw(t, "one rule") {
		r.Drop.Rule, r.Drop.Text = rapid.Uint32Min(1).Draw(t, "rule"), rapid.StringMatching("drop [a-z0-9 ]{1,20}").Draw(t, "text")
	}
}

// PDM is what marked packets may have reported of a flow.
func PDM(t *rapid.T) *flow.PDM {
	count := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
	delays := func(name string) flow.Delays {
		var h inband.Histogram
		for _, ns := range rapid.SliceOfN(rapid.Uint64Range(0, 1<<40), 0, 5).Draw(t, name) {
			h.Add(ns)
		}
		return flow.DelaysOf(&h)
	}
	return &flow.PDM{
		Sent: count("sent"), Received: count("received"), Lost: rapid.Int64().Draw(t, "lost"),
		Reordered: count("reordered"), Duplicates: count("duplicates"),
		Suspicious: count("suspicious"), Discarded: count("discarded"),
		Server: delays("server"), Network: delays("network"),
	}
}
