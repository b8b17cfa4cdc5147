package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
)

// NodeCost is how much longer a packet with a trace is in the programs of a node, compared with
// an agent that only counts flows.
type NodeCost struct {
	Node  string `json:"node"`
	Role  string `json:"role"`
	Added Spread `json:"added_ns"`
}

// nodeRoles are those of the nodes of the chain.
var nodeRoles = []string{"encapsulating", "transit", "transit", "transit", "decapsulating"}

// nodeRun is what the programs of the nodes did during a transfer.
type nodeRun struct {
	time   []float64 // ns
	runs   []float64
	traces float64 // that ended at the last node
}

// measureNodes sends single packets through both lanes in turns, while the kernel measures the programs.
func measureNodes(ctx context.Context, rounds int, on, off *ioamLane, port int) (out []NodeCost, err error) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("measuring programs: %w", err)
	}
	defer stats.Close()
	lanes := []*ioamLane{on, off}
	streams := make([]*ioamStream, len(lanes))
	for i, l := range lanes {
		if streams[i], err = openStream(ctx, l.lab, port, ""); err != nil {
			return nil, err
		}
		defer streams[i].close()
	}
	values := make([][]float64, chainNodes)
	for round := range warmUpRounds + rounds {
		var runs [2]nodeRun
		for i, l := range lanes {
			if runs[i], err = l.run(ctx, streams[i]); err != nil {
				return nil, fmt.Errorf("%s: %w", l.kind, err)
			}
		}
		if round < warmUpRounds {
			continue
		}
		if runs[0].traces == 0 {
			return nil, fmt.Errorf("no trace ended at the last node")
		}
		for i := range values {
			with, without := runs[0], runs[1]
			values[i] = append(values[i], (with.time[i]-without.time[i]/without.runs[i]*with.runs[i])/with.traces)
		}
	}
	for i, h := range on.lab.Hosts() {
		out = append(out, NodeCost{Node: h.Name, Role: nodeRoles[i], Added: spreadOf(values[i])})
	}
	return out, nil
}

// run sends a turn's bytes.
func (l *ioamLane) run(ctx context.Context, s *ioamStream) (r nodeRun, err error) {
	before, err := l.programs(ctx)
	if err != nil {
		return r, err
	}
	if _, err := s.move(sliceBytes[false]); err != nil {
		return r, err
	}
	after, err := l.programs(ctx)
	if err != nil {
		return r, err
	}
	for i := range after.time {
		r.time, r.runs = append(r.time, after.time[i]-before.time[i]), append(r.runs, after.runs[i]-before.runs[i])
	}
	r.traces = after.traces - before.traces
	if slices.Contains(r.runs, 0) {
		return r, fmt.Errorf("programs did not run: %v", r.runs)
	}
	return r, nil
}

// programs are the totals of the programs of each node.
func (l *ioamLane) programs(ctx context.Context) (r nodeRun, err error) {
	for i, c := range l.clients {
		s, err := c.Status(ctx)
		if err != nil {
			return r, fmt.Errorf("asking agent %d: %w", i, err)
		}
		var t, n float64
		for _, p := range s.Programs {
			t, n = t+float64(p.RunTime), n+float64(p.RunCount)
		}
		r.time, r.runs = append(r.time, t), append(r.runs, n)
		if node := ioamservice.StatusOf(&s); node != nil {
			r.traces = float64(node.Written) // the last node's stays
		}
	}
	return r, nil
}
