package bench

import (
	"context"
	"fmt"
)

// IOAMReport is what IOAM costs.
type IOAMReport struct {
	Run
	Costs      []IOAMCost     `json:"costs"`
	Transit    IOAMTransit    `json:"transit"`
	Throughput IOAMThroughput `json:"throughput"`
	Paper      IOAMPaper      `json:"paper"`
	Budgets    []Budget       `json:"budgets"`
}

// IOAMPaper is what the authors of the first implementation in Linux report, and of later work on it, on
// their machines. Only ratios compare.
type IOAMPaper struct {
	Registered [2]float64 `json:"registered_gbit_per_s"` // without and with IOAM registered
	One        float64    `json:"one_percent"`           // of the throughput, lost with a trace in 1 % of the packets
	Inline     [2]float64 `json:"inline_mpps"`           // without and with a trace in each packet, in later work
}

var ioamPaper = IOAMPaper{Registered: [2]float64{3.15, 2.93}, One: 2, Inline: [2]float64{0.972, 0.492}}

// IOAM measures a node of IOAM, self being the program that runs as the agent.
func IOAM(ctx context.Context, cfg Config, self string) (*IOAMReport, error) {
	run, err := begin("ioam", cfg)
	if err != nil {
		return nil, err
	}
	r := &IOAMReport{Run: run, Paper: ioamPaper}
	cfg.Progress("programs of a transit node")
	if r.Costs, err = measureIOAMCosts(traceKinds, cfg.visits()*cfg.rounds(1)); err != nil {
		return nil, err
	}
	if r.Transit, err = measureTransits(ctx, cfg.transits(), cfg.Progress); err != nil {
		return nil, fmt.Errorf("transit nodes: %w", err)
	}
	modes, err := ioamModes(cfg.Quick)
	if err != nil {
		return nil, err
	}
	if r.Throughput, err = measureThroughput(ctx, cfg.throughput(), modes, cfg.Progress, self); err != nil {
		return nil, fmt.Errorf("throughput: %w", err)
	}
	r.Budgets = r.budgets()
	r.end()
	return r, nil
}

// Limits of the design.
const (
	limitTransit = 60      // ns over the empty program
	limitLinux   = 1.0 / 3 // of what Linux's own transit node adds
	limitAll     = 7       // % of the throughput, lost with a trace in each packet
	limitOne     = 1       // % of the throughput, lost with a trace in 1 % of the packets
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
	for _, p := range r.Throughput.Points {
		limit := map[string]float64{modeAll: limitAll, modeOne: limitOne}[p.Mode]
		if limit > 0 {
			out = append(out, budget(fmt.Sprintf("throughput lost, traces in %s of the packets, %s", p.Mode, p.sent()), limit, 100*(1-p.Ratio.Median), "%"))
		}
	}
	return out
}
