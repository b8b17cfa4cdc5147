package service

import (
	"fmt"

	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/verdict"
)

// counters are the packets that rules and bans dropped.
func counters(s *obs.Status) (out []verdict.Counter) {
	g := StatusOf(s)
	if g == nil {
		return nil
	}
	for _, r := range g.Rules.Rules {
		if r.Dropped > 0 {
			out = append(out, verdict.Counter{
				Kind: verdict.GateDrops, ID: fmt.Sprint(r.ID), N: r.Dropped, Where: verdict.Where{Rule: r.ID, RuleText: r.Text},
			})
		}
	}
	if g.Banned.Dropped > 0 {
		out = append(out, verdict.Counter{Kind: verdict.GateDrops, ID: "bans", N: g.Banned.Dropped, Where: verdict.Where{Part: "bans", RuleText: "bans"}})
	}
	return out
}
