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
		by, command := fmt.Sprintf("by rule %d (%s)", c.Where.Rule, c.Where.RuleText), "waymark rules list"
		if c.Where.Rule == 0 {
			by, command = "because their source is banned", "waymark rules bans"
		}
		text := fmt.Sprintf("The gate drops %s packets/s %s", term.Rate(float64(c.N), over), by)
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
			Where: where, Command: command,
			scope: scope{id: c.ID, addresses: addresses(), dropped: c.N},
		})
	}
	return nil
}
