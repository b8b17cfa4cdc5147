package bench

import "fmt"

// Budget is a promise of the design and what became of it in this run.
type Budget struct {
	Name  string  `json:"name"`
	Limit float64 `json:"limit"`
	Value float64 `json:"value"` // of the worst sort of packet, its median
	Unit  string  `json:"unit"`
	Met   bool    `json:"met"`
}

func budget(name string, limit, value float64, unit string) Budget {
	return Budget{Name: name, Limit: limit, Value: value, Unit: unit, Met: value <= limit}
}

// Limits of the design.
const (
	limitHot      = 15  // ns over the empty program, one flow
	limitMillion  = 120 // ns, a million flows
	limitRatio    = 0.4 // to the program with a hash map
	limitFeature  = 15  // ns that a feature that is on, or a packet in no flow, adds
	limitDrain    = 150 // ms, a million flows
	limitUserTime = 0.5 // µs of user space, a record
)

func (r *DatapathReport) budgets() []Budget {
	worst := map[int]map[string]float64{} // by flows and program
	ratio := map[int]float64{}
	most := 0
	for _, p := range r.Points {
		if worst[p.Flows] == nil {
			worst[p.Flows] = map[string]float64{}
		}
		most = max(most, p.Flows)
		for _, c := range p.Costs {
			worst[p.Flows][c.Program] = max(worst[p.Flows][c.Program], c.Over.Median)
			if c.Program == costIngress && c.Ratio != nil {
				ratio[p.Flows] = max(ratio[p.Flows], c.Ratio.Median)
			}
		}
	}
	out := []Budget{
		budget("flow account, one flow", limitHot, worst[1][costStage], "ns"),
	}
	if most >= 1e6 {
		out = append(out, budget(fmt.Sprintf("flow account, %d flows", most), limitMillion, worst[most][costStage], "ns"))
	}
	for _, flows := range r.flowCounts() {
		out = append(out, budget(fmt.Sprintf("whole program to HASH reference, %d flows", flows), limitRatio, ratio[flows], "×"))
	}
	for _, c := range r.Features {
		switch c.Program {
		case costTunnels, costSampling, costARP:
			out = append(out, budget(c.Program+", over a plain packet", limitFeature, c.Added.Median, "ns"))
		}
	}
	return append(out,
		budget(fmt.Sprintf("drain of %d flows", r.Drain.Flows), limitDrain, r.Drain.Milliseconds.Median, "ms"),
		budget("user time of an exported record", limitUserTime, r.Export.User.Median, "µs"),
	)
}

// flowCounts are the numbers of flows measured, in order.
func (r *DatapathReport) flowCounts() []int {
	var out []int
	for _, p := range r.Points {
		if len(out) == 0 || p.Flows > out[len(out)-1] {
			out = append(out, p.Flows)
		}
	}
	return out
}
