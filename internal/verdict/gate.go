package verdict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/term"
)

// judgeGate finds rules that drop packets. They may be meant to: what they drop is shown, and so is
// what follows from it.
func judgeGate(w *window, f *finding) error {
	own, over := w.counters(GateDrops)
	places := w.dropPlaces()
	at := []string{}
	for _, p := range places {
		at = append(at, strings.TrimPrefix(p.Netns+"/"+p.Iface, "/"))
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
			where.Netns, where.Iface = places[0].Netns, places[0].Iface
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

// dropPlaces are the interfaces at which the gate dropped packets, of known flows or not.
func (w *window) dropPlaces() (places []Where) {
	unknown, _ := w.counters(InNoFlow)
	ofFlows, _ := w.counters(DroppedAt)
	for _, c := range append(unknown, ofFlows...) {
		p := Where{Netns: c.Where.Netns, Iface: c.Where.Iface}
		if c.Where.Reason == DroppedByRule && !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	return places
}
