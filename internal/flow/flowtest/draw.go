// Package flowtest draws random parts of records for property tests. Input: a test.
// Output: values that probes could report. Only tests call it.
package flowtest

import (
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
)

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
