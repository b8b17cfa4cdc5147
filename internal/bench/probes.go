package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"
)

// ProbesReport holds whole probes side by side.
type ProbesReport struct {
	Run
	Packets  int          `json:"packets"` // of a round
	Rounds   int          `json:"rounds"`
	Scan     string       `json:"scan_interval"` // of the agent
	Measured []ProbeCost  `json:"measured"`
	Absent   []AbsentTool `json:"absent"`
}

// AbsentTool is a probe that could not be measured.
type AbsentTool struct {
	Probe string `json:"probe"`
	Why   string `json:"why"`
}

// ProbeCost is what one probe did and took at a number of flows.
type ProbeCost struct {
	Probe   string  `json:"probe"`
	Flows   int     `json:"flows"`
	Total   Spread  `json:"kernel_ns"`         // a packet sent and received, with the probe there
	Over    Spread  `json:"kernel_ns_over"`    // no probe, in the same round
	Process float64 `json:"process_ns"`        // processor time of the probe's process, a packet
	Memory  float64 `json:"memory_mib"`        // of its process, at most, resident
	Sent    uint64  `json:"sent"`              // packets that arrived at the interface
	Counted uint64  `json:"counted"`           // of these, as the probe tells
	Records uint64  `json:"records"`           // flow records; 0: it makes none
	Exact   bool    `json:"exact"`             // all were counted
	Kernel  float64 `json:"kernel_memory_mib"` // maps and rings, where the probe tells
}

// share of the packets that arrived is counted.
func (c *ProbeCost) share() float64 { return float64(c.Counted) / float64(max(c.Sent, 1)) }

// none is the lane without a probe.
const none = "none"

// summary is what a probe tells when it ends.
type summary struct {
	counted   uint64
	records   uint64
	process   time.Duration // since it was ready
	memory    uint64        // bytes
	kernelMem uint64        // bytes
}

// tool is a probe to be measured.
type tool struct {
	name  string
	needs string // program that has to be installed
	// start returns when the probe counts what arrives at the interface.
	start func(ctx context.Context, s *space, iface, dir string, run probesRun) (running, error)
}

// running is a probe at work. finish waits for it to tell of n packets, or to
// have no more to tell, and ends it.
type running interface {
	finish(ctx context.Context, n uint64) (summary, error)
}

// Probes measures whole probes on veth pairs, self being the program that runs
// as the agent.
func Probes(ctx context.Context, cfg Config, self string) (*ProbesReport, error) {
	run, err := begin("probes", cfg)
	if err != nil {
		return nil, err
	}
	r := &ProbesReport{Run: run, Packets: 200_000, Rounds: 21, Scan: "10s"}
	flows := []int{1, 10, 100, 1000, 10_000, 100_000, 1_000_000}
	if cfg.Quick {
		flows, r.Packets, r.Rounds, r.Scan = []int{1, 1000, 100_000}, 200_000, 3, "2s"
	}
	var tools []tool
	for _, t := range allTools(self) {
		if t.needs != "" {
			if _, err := exec.LookPath(t.needs); err != nil {
				r.Absent = append(r.Absent, AbsentTool{t.name, t.needs + " is not installed"})
				continue
			}
		}
		tools = append(tools, t)
	}
	for _, n := range flows {
		cfg.Progress(fmt.Sprintf("probes: %d flows", n))
		costs, err := measureProbes(ctx, tools, r.run(n))
		if err != nil {
			return nil, fmt.Errorf("%d flows: %w", n, err)
		}
		r.Measured = append(r.Measured, costs...)
	}
	r.end()
	return r, nil
}

// probesRun is the traffic of a comparison.
type probesRun struct {
	flows, packets, rounds int
	scan                   string // flow.scan_interval of the agent
}

// run is the traffic at a number of flows: each comes up in every round, and
// where that takes long there are fewer rounds.
func (r *ProbesReport) run(flows int) probesRun {
	run := probesRun{flows: flows, packets: max(r.Packets, flows), rounds: r.Rounds, scan: r.Scan}
	if flows > r.Packets {
		run.rounds = min(run.rounds, 7)
	}
	return run
}

// measureProbes gives every probe a lane of its own and sends on all in turns.
func measureProbes(ctx context.Context, tools []tool, run probesRun) (_ []ProbeCost, err error) {
	r, err := newRange(1+len(tools), run.flows)
	if err != nil {
		return nil, err
	}
	defer r.close()
	dir, remove, err := temporaryFolder()
	if err != nil {
		return nil, err
	}
	defer remove()

	var probes []running
	defer func() {
		if err != nil {
			for _, p := range probes {
				ended, cancel := context.WithCancel(context.Background())
				cancel()
				_, e := p.finish(ended, 0)
				err = errors.Join(err, e)
			}
		}
	}()
	for i, t := range tools {
		p, err := t.start(ctx, r.to, r.lanes[1+i].name, dir, run)
		if err != nil {
			return nil, fmt.Errorf("starting %s: %w", t.name, err)
		}
		probes = append(probes, p)
	}
	total := make([][]float64, len(r.lanes))
	arrived := make([]uint64, len(r.lanes))
	for round := range run.rounds + 1 {
		for i, l := range r.lanes {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			v, err := l.shoot(run.packets)
			if err != nil {
				return nil, err
			}
			arrived[i] += v.received
			if round > 0 { // the first fills tables
				total[i] = append(total[i], v.ns)
			}
		}
	}
	costs := []ProbeCost{{
		Probe: none, Flows: run.flows, Total: spreadOf(total[0]), Sent: arrived[0],
	}}
	summaries, err := finishAll(ctx, tools, probes, arrived[1:])
	probes = nil // they have ended
	if err != nil {
		return nil, err
	}
	for i, t := range tools {
		s := summaries[i]
		costs = append(costs, ProbeCost{
			Probe: t.name, Flows: run.flows,
			Total: spreadOf(total[1+i]), Over: pairwise(total[1+i], total[0], minus),
			Process: float64(s.process) / float64(arrived[1+i]),
			Memory:  float64(s.memory) / (1 << 20), Kernel: float64(s.kernelMem) / (1 << 20),
			Sent: arrived[1+i], Counted: s.counted, Records: s.records,
			Exact: s.counted == arrived[1+i],
		})
	}
	return costs, nil
}

// finishAll lets all probes come to their end at the same time.
func finishAll(ctx context.Context, tools []tool, probes []running, arrived []uint64) ([]summary, error) {
	out := make([]summary, len(probes))
	var group errgroup.Group
	for i, p := range probes {
		group.Go(func() (err error) {
			if out[i], err = p.finish(ctx, arrived[i]); err != nil {
				return fmt.Errorf("%s: %w", tools[i].name, err)
			}
			return nil
		})
	}
	return out, group.Wait()
}
