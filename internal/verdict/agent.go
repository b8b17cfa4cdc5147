package verdict

import (
	"fmt"

	"github.com/waymark-net/waymark/internal/term"
)

// leastPackets is the fewest packets of an interface whose coverage gives a verdict.
const leastPackets = 1000

// judgeAgent finds what the agent itself lost: an answer that rests on it is not whole.
func judgeAgent(w *window, f *finding) error {
	own, _ := w.counters(AgentLosses)
	f.count = uint64(len(own))
	for _, c := range own {
		if c.N < w.AgentLosses {
			continue
		}
		f.add(Verdict{
			Text:    fmt.Sprintf("The agent lost %s in %s (%s); threshold %d", term.Number(c.N, unitOf(&c)), c.Where.Part, c.Where.Reason, w.AgentLosses),
			Measure: "packets or records lost", Unit: packets, Value: float64(c.N), Threshold: float64(w.AgentLosses), Samples: c.N,
			Where: c.Where, Command: "waymark status",
			scope: scope{id: c.ID},
		})
	}
	for _, c := range w.deps.Conditions() {
		f.count++
		short := 1 - c.Coverage
		if c.Coverage > 0 && (c.Coverage >= w.Coverage || c.Packets < leastPackets) {
			continue
		}
		f.add(Verdict{
			Text: c.Text, Measure: "share of packets that is not counted", Unit: "share", Value: short, Threshold: 1 - w.Coverage, Samples: c.Packets,
			Where: c.Where, Command: "waymark status",
			scope: scope{id: "condition " + c.Where.Netns + " " + c.Where.Iface + " " + c.Where.Direction},
		})
	}
	return nil
}

// unitOf is what a part of the agent loses: an exporter has records.
func unitOf(c *Counter) string {
	if c.Where.Iface == "" && c.Where.Part != kernelTable {
		return "records"
	}
	return "packets"
}

// kernelTable is the part that loses packets, as package obs calls it.
const kernelTable = "kernel table"
