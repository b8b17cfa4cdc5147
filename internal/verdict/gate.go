package verdict

import (
	"fmt"
	"strings"

	"github.com/waymark-net/waymark/internal/term"
)

// judgeGate finds rules that drop packets. They may be meant to: what they drop is shown, and so is
// what follows from it.
func judgeGate(w *window, f *finding) error {
	own, over := w.counters(GateDrops)
	places, _ := w.counters(DroppedAt)
	at := []string{}
	for _, p := range places {
		at = append(at, strings.TrimPrefix(p.Where.Netns+"/"+p.Where.Iface, "/"))
	}
	for _, c := range own {
		f.count += c.N
		if c.N < w.GateDrops {
			continue
		}
		text := fmt.Sprintf("The gate drops %s packets/s by rule %d (%s)", term.Rate(float64(c.N), over), c.Where.Rule, c.Where.RuleText)
		if len(at) > 0 {
			text += " at " + strings.Join(at, ", ")
		}
		where := c.Where
		if len(places) == 1 {
			where.Netns, where.Iface = places[0].Where.Netns, places[0].Where.Iface
		}
		f.add(Verdict{
			Text:    fmt.Sprintf("%s, %s; threshold %d", text, term.Number(c.N, "packets"), w.GateDrops),
			Measure: "packets dropped", Unit: packets, Value: float64(c.N), Threshold: float64(w.GateDrops), Samples: c.N,
			Where: where, Command: "waymark rules list",
			scope: scope{id: c.ID, addresses: addresses(), dropped: c.N},
		})
	}
	return nil
}
