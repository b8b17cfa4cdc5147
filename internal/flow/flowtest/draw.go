// Package flowtest draws random parts of records for property tests. Input: a test.
// Output: values that probes could report. Only tests call it.
package flowtest

import (
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
)

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
