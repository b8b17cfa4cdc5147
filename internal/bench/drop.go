package bench

import (
	"context"
	"fmt"
)

// DropReport holds ways to drop packets side by side.
type DropReport struct {
	Run
	Packets  int          `json:"packets"` // of a round
	Rounds   int          `json:"rounds"`
	Measured []DropCost   `json:"measured"`
	Absent   []AbsentTool `json:"absent"`
	Budgets  []Budget     `json:"budgets"`

	rounds map[string][]float64 // ns of each way
}

// DropCost is what it takes one way to drop a packet.
type DropCost struct {
	Way     string  `json:"way"`
	Total   Spread  `json:"ns"`         // a packet sent and received, processor time
	Receive Spread  `json:"receive_ns"` // less sending it to an interface that is down, in the same round
	Rate    float64 `json:"mpps"`       // packets that one processor sends and drops per second, in millions
	Ratio   Spread  `json:"ratio"`      // receiving, over that of nftables in the same round
	Sent    uint64  `json:"sent"`
	Dropped uint64  `json:"dropped"` // as the way counts
	Counts  bool    `json:"counts"`  // false: it does not
}

// Lanes that drop nothing.
const (
	dropNone     = "no rule: the stack finds no receiver"
	dropSending  = "sending alone"
	dropIptables = "iptables, raw table"
	dropNFT      = "nftables, netdev ingress"
	dropWaymark  = "waymark, XDP native"
	// xdp-filter as its users load it, and for ports of UDP alone.
	dropFilterAll = "xdp-filter, as it loads by default"
	dropFilterUDP = "xdp-filter, for UDP only (-f udp)"
	// Of lanes whose packets are of many flows: none is like the one before.
	inTurns = ", 1,024 flows in turns"
)

// manyFlows are those of such a lane.
const manyFlows = 1024

// Limits of the design.
const (
	limitDrop   = 0.2 // of what nftables takes at netdev ingress
	limitFilter = 1   // of what xdp-filter takes
)

// dropper drops UDP to port 53 that arrives at an interface.
type dropper struct {
	name  string
	needs string // program that has to be installed
	// start returns when packets are dropped. count: how many have been so far; nil: it does not count.
	start starter
	flows int // of the packets; 0: one
}

type starter func(ctx context.Context, s *space, iface, dir string) (dropping, error)

// dropping is a dropper at work.
type dropping struct {
	count func(ctx context.Context) (uint64, error)
	stop  func() error
}

// dropLane is a dropper with namespaces of its own: rules of one are no work for another.
type dropLane struct {
	*lane
	dropping
	name string
	ns   []float64
	sent uint64
}

// Drop measures ways to drop packets.
func Drop(ctx context.Context, cfg Config) (*DropReport, error) {
	run, err := begin("drop", cfg)
	if err != nil {
		return nil, err
	}
	r := &DropReport{Run: run, Packets: 200_000, Rounds: 41}
	if cfg.Quick {
		r.Packets, r.Rounds = 100_000, 5
	}
	if err := r.measure(ctx, cfg, droppers()); err != nil {
		return nil, err
	}
	r.Budgets = r.budgets()
	r.end()
	return r, nil
}

// measure has ways to drop packets take turns.
func (r *DropReport) measure(ctx context.Context, cfg Config, ways []dropper) error {
	dir, remove, err := temporaryFolder()
	if err != nil {
		return err
	}
	defer remove()
	var lanes []*dropLane
	defer func() {
		for _, l := range lanes {
			l.close()
		}
	}()
	for _, d := range ways {
		err := installed(d.needs)
		var l *dropLane
		if err == nil {
			l, err = newDropLane(ctx, d, dir)
		}
		switch {
		case err == nil:
			lanes = append(lanes, l)
		case d.needs != "": // nothing of Waymark
			r.Absent = append(r.Absent, AbsentTool{d.name, err.Error()})
		default:
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	for round := range r.Rounds + 1 {
		cfg.Progress(fmt.Sprintf("%s: round %d of %d", r.Name, round, r.Rounds))
		for _, l := range lanes {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := l.visit(r.Packets, round > 0); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	r.rounds = map[string][]float64{}
	for _, l := range lanes {
		r.rounds[l.name] = l.ns
	}
	r.Measured, err = dropCosts(ctx, lanes)
	return err
}

func newDropLane(ctx context.Context, d dropper, dir string) (*dropLane, error) {
	l, err := newBareLane(max(d.flows, 1))
	if err != nil {
		return nil, err
	}
	out := &dropLane{lane: l, name: d.name}
	if d.start == nil {
		return out, nil
	}
	if out.dropping, err = d.start(ctx, l.r.to, l.name, dir); err != nil {
		l.r.close()
		return nil, err
	}
	return out, nil
}

// visit sends packets; the first round, which warms caches, is not kept.
func (l *dropLane) visit(packets int, keep bool) error {
	v, err := l.shoot(packets)
	if err != nil {
		return err
	}
	l.sent += v.sent
	if keep {
		l.ns = append(l.ns, v.ns)
	}
	return nil
}

func (l *dropLane) close() {
	if l.stop != nil {
		_ = l.stop() // its namespace goes in any case
	}
	l.r.close()
}

// dropCosts compares the lanes, and checks that each dropped what was sent.
func dropCosts(ctx context.Context, lanes []*dropLane) ([]DropCost, error) {
	by := map[string][]float64{}
	for _, l := range lanes {
		by[l.name] = l.ns
	}
	receive := func(name string) []float64 {
		out := make([]float64, len(by[name]))
		for i := range out {
			out[i] = by[name][i] - by[dropSending][i]
		}
		return out
	}
	var costs []DropCost
	for _, l := range lanes {
		c := DropCost{Way: l.name, Total: spreadOf(l.ns), Sent: l.sent, Counts: l.count != nil}
		c.Rate = 1e3 / c.Total.Median
		if l.name != dropSending && by[dropSending] != nil {
			c.Receive = spreadOf(receive(l.name))
			if by[dropNFT] != nil {
				c.Ratio = pairwise(receive(l.name), receive(dropNFT), over)
			}
		}
		if l.count != nil {
			var err error
			if c.Dropped, err = l.count(ctx); err != nil {
				return nil, fmt.Errorf("%s: counting what it dropped: %w", l.name, err)
			}
			if c.Dropped != c.Sent {
				return nil, fmt.Errorf("%s: %d packets were sent, and %d dropped", l.name, c.Sent, c.Dropped)
			}
		}
		costs = append(costs, c)
	}
	return costs, nil
}

func (r *DropReport) budgets() (out []Budget) {
	cost := map[string]DropCost{}
	for _, c := range r.Measured {
		cost[c.Way] = c
	}
	if _, ok := cost[dropNFT]; ok {
		out = append(out, budget("receiving and dropping, over nftables at netdev ingress", limitDrop, cost[dropWaymark].Ratio.Median, "×"))
	}
	for _, packets := range []string{"", inTurns} {
		for _, way := range []string{dropFilterAll, dropFilterUDP} {
			if filter, ok := cost[way+packets]; ok {
				name := fmt.Sprintf("the same%s, over %s", packets, way)
				out = append(out, budget(name, limitFilter, cost[dropWaymark+packets].Receive.Median/filter.Receive.Median, "×"))
			}
		}
	}
	return out
}
