package bench

import (
	"context"
	"fmt"
)

// IOAMReport is what IOAM costs.
type IOAMReport struct {
	Run
	Costs   []IOAMCost  `json:"costs"`
	Transit IOAMTransit `json:"transit"`
	Budgets []Budget    `json:"budgets"`
}

// IOAM measures a node of IOAM, self being the program that runs as the agent.
func IOAM(ctx context.Context, cfg Config, self string) (*IOAMReport, error) {
	run, err := begin("ioam", cfg)
	if err != nil {
		return nil, err
	}
	r := &IOAMReport{Run: run}
	cfg.Progress("programs of a transit node")
	if r.Costs, err = measureIOAMCosts(traceKinds, cfg.visits()*cfg.rounds(1)); err != nil {
		return nil, err
	}
	if r.Transit, err = measureTransits(ctx, cfg.transits(), cfg.Progress); err != nil {
		return nil, fmt.Errorf("transit nodes: %w", err)
	}
	r.Budgets = r.budgets()
	r.end()
	return r, nil
}

// Limits of the design.
const (
	limitTransit = 60      // ns over the empty program
	limitLinux   = 1.0 / 3 // of what Linux's own transit node adds
)

func (r *IOAMReport) budgets() []Budget {
	var out []Budget
	for _, c := range r.Costs {
		out = append(out, budget(fmt.Sprintf("transit at XDP, trace of %s", c.Fields), limitTransit, c.XDP.Median, "ns"))
	}
	for _, n := range r.Transit.Nodes {
		if n.Node == routersTC || n.Node == routersXDP {
			out = append(out, budget("transit by "+n.Node+", over Linux on the same chain", limitLinux, n.Linux, "×"))
		}
	}
	return out
}
