package bench

import (
	"context"
	"fmt"
)

// PDMReport is what marking with PDM (RFC 8250) costs.
type PDMReport struct {
	Run
	Costs    []PDMCost   `json:"costs"`
	Sizes    []PDMSize   `json:"sizes"`
	State    PDMState    `json:"state"`
	Transfer PDMTransfer `json:"transfer"`
	Draft    Draft       `json:"draft"`
	Budgets  []Budget    `json:"budgets"`
}

// PDMState is what the kernel keeps of marked flows, in bytes of one flow.
type PDMState struct {
	MaxFlows uint64  `json:"max_flows"` // by default
	KeyValue uint64  `json:"key_value"` // the state and what it is found by
	Kernel   float64 `json:"kernel"`    // all memory of the map over the flows it has room for
}

// Draft is what draft-elkins-v6ops-bpf-pdm-ebpf-00 tells of its own programs, on
// its authors' machine. There is nothing in this run to compare it with but
// ratios.
type Draft struct {
	Egress      float64    `json:"egress_ns"` // a packet
	Ingress     float64    `json:"ingress_ns"`
	Rate        [2]float64 `json:"gbit_per_s"` // without and with marks
	Retransmits [2]float64 `json:"retransmits"`
	State       uint64     `json:"state_octets"` // of a flow
	Flows       uint64     `json:"flows"`
}

var draft = Draft{
	Egress: 1280, Ingress: 552, Rate: [2]float64{18.80, 18.03}, Retransmits: [2]float64{2, 38}, State: 20, Flows: 65536,
}

// PDM measures marking, self being the program that runs as the agent.
func PDM(ctx context.Context, cfg Config, self string) (*PDMReport, error) {
	run, err := begin("pdm", cfg)
	if err != nil {
		return nil, err
	}
	r := &PDMReport{Run: run, Draft: draft}
	for _, s := range pdmScenarios() {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		cfg.Progress("programs: " + s.String())
		cost, err := s.measure(cfg.rounds(s.flows))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		r.Costs = append(r.Costs, cost)
	}
	if r.Sizes, r.State, err = measurePDMSizes(); err != nil {
		return nil, err
	}
	if r.Transfer, err = measureTransfers(ctx, cfg.transfers(), cfg.Progress, self); err != nil {
		return nil, fmt.Errorf("transfers: %w", err)
	}
	r.Budgets = r.budgets()
	r.end()
	return r, nil
}

// Limits of the design.
const (
	limitMark        = 150 // ns over the empty program
	limitRead        = 100
	limitBurstLoss   = 1 // % of the throughput, and of the processor time that makes it
	limitRetransmits = 0 // more than without marks
)

func (r *PDMReport) budgets() []Budget {
	var out []Budget
	for _, c := range r.Costs {
		switch c.What {
		case costMark:
			out = append(out, budget("parse and mark, "+flowsOf(c.Flows), limitMark, c.Stage.Median, "ns"))
		case costRead:
			out = append(out, budget("parse and read, "+flowsOf(c.Flows), limitRead, c.Stage.Median, "ns"))
		}
	}
	for _, m := range r.Transfer.Modes {
		if m.Mode == modeBurst {
			out = append(
				out,
				budget("throughput lost by bursts marked", limitBurstLoss, 100*(1-m.Ratio.Median), "%"),
				budget("processor time of a transfer, more by bursts marked", limitBurstLoss, 100*(m.Work.Median-1), "%"),
				budget("segments sent again, more than unmarked", limitRetransmits, m.More.Median, "a run"),
			)
		}
	}
	return out
}
