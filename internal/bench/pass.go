package bench

import (
	"context"
	"fmt"
	"slices"
)

// PassCost is what it takes one way to pass a packet on.
type PassCost struct {
	Flows   int     `json:"flows"`
	Way     string  `json:"way"`
	Total   Spread  `json:"ns"`         // a packet sent, passed on and received, processor time
	Receive Spread  `json:"receive_ns"` // less sending it to an interface that is down, in the same round
	Rate    float64 `json:"mpps"`       // packets that one processor sends, passes on and receives per second, in millions
	Ratio   Spread  `json:"ratio"`      // receiving, over that of the kernel's forwarding in the same round
	Sent    uint64  `json:"sent"`
	Arrived uint64  `json:"arrived"`
}

// AbsentPass is a way that was not measured, with some numbers of flows or all.
type AbsentPass struct {
	Way   string `json:"way"`
	Flows []int  `json:"flows"`
	Why   string `json:"why"`
}

// Passes holds ways to pass packets on side by side.
type Passes struct {
	Packets  int          `json:"packets"` // of a round, at least
	Rounds   int          `json:"rounds"`
	Measured []PassCost   `json:"measured"`
	Absent   []AbsentPass `json:"absent"`
	Programs []PassRun    `json:"programs"`
	Budgets  []Budget     `json:"budgets"`
}

// passPlan is what a report measures with each number of flows.
type passPlan struct {
	flows   string // what there are many of
	packets passPackets
	ways    func(flows int) ([]passer, []passWork)
}

// each measures ways, and then programs alone, with each number of flows.
func (r *Passes) each(ctx context.Context, progress func(string), numbers []int, plan passPlan) error {
	for _, n := range numbers {
		packets := plan.packets
		packets.flows = n
		ways, work := plan.ways(n)
		if err := r.measure(ctx, progress, packets, ways); err != nil {
			return fmt.Errorf("%d %s: %w", n, plan.flows, err)
		}
		progress(fmt.Sprintf("%d %s: the program alone", n, plan.flows))
		runs, err := measureRuns(packets, r.Rounds, work)
		if err != nil {
			return fmt.Errorf("%d %s: %w", n, plan.flows, err)
		}
		r.Programs = append(r.Programs, runs...)
	}
	return nil
}

// Ways that other ways are compared with.
const (
	passSending = "sending alone"
	passKernel  = "the kernel"
	passTracked = "the kernel, with conntrack"
)

// passer passes packets on that arrive at passInto of a router.
type passer struct {
	name  string
	needs string // program that has to be installed; not empty: it may be unavailable
	start passStarter
}

// passStarter returns when packets are passed on; nil: the kernel does.
type passStarter func(ctx context.Context, l *passLane) (passing, error)

// passing is a way at work. Each function may be missing.
type passing struct {
	settle func() error           // is called between the first rounds
	passed func() (uint64, error) // how many packets went this way, as it counts
	stop   func() error
}

// passTurns is a way at work.
type passTurns struct {
	*passLane
	passing
	name          string
	ns            []float64
	sent, arrived uint64
}

// warmUps are rounds that are not kept: afterwards tables have grown, and then connections and flows are known.
const warmUps = 4

// mostLost is the share of packets that a way may lose, when somebody else has the processor for long.
const mostLost = 0.01

// measure has ways take turns with packets of so many flows.
func (r *Passes) measure(ctx context.Context, progress func(string), packets passPackets, ways []passer) error {
	var lanes []*passTurns
	defer func() {
		for _, l := range lanes {
			l.close()
		}
	}()
	for _, w := range ways {
		progress(fmt.Sprintf("%d flows: %s", packets.flows, w.name))
		l, err := newPassTurns(ctx, w, packets)
		switch {
		case err == nil:
			lanes = append(lanes, l)
		case w.needs != "": // nothing of Waymark
			r.lacks(w.name, packets.flows, err.Error())
		default:
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	for round := range warmUps + r.Rounds {
		n := r.Packets
		if round < warmUps {
			n = max(n, packets.flows)
		}
		for i := range lanes {
			l := lanes[(round+i)%len(lanes)]
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := l.visit(n, round); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	return r.compare(packets.flows, lanes)
}

// lacks says why there is no measurement.
func (r *Passes) lacks(way string, flows int, why string) {
	if i := slices.IndexFunc(r.Absent, func(a AbsentPass) bool { return a.Way == way && a.Why == why }); i >= 0 {
		r.Absent[i].Flows = append(r.Absent[i].Flows, flows)
		return
	}
	r.Absent = append(r.Absent, AbsentPass{way, []int{flows}, why})
}

func newPassTurns(ctx context.Context, w passer, packets passPackets) (*passTurns, error) {
	if err := installed(w.needs); err != nil {
		return nil, err
	}
	l, err := newPassLane(packets)
	if err != nil {
		return nil, err
	}
	out := &passTurns{passLane: l, name: w.name}
	if w.start == nil {
		return out, nil
	}
	if out.passing, err = w.start(ctx, l); err != nil {
		l.close()
		return nil, err
	}
	return out, nil
}

// visit sends packets.
func (l *passTurns) visit(packets, round int) error {
	v, err := l.shoot(packets)
	if err != nil {
		return err
	}
	l.sent, l.arrived = l.sent+v.sent, l.arrived+v.received
	if round >= warmUps {
		l.ns = append(l.ns, v.ns)
	} else if l.settle != nil && round < warmUps-1 {
		return l.settle()
	}
	return nil
}

func (l *passTurns) close() {
	if l.stop != nil {
		_ = l.stop() // its namespace goes in any case
	}
	l.passLane.close()
}

// compare checks that each way passed on what was sent.
func (r *Passes) compare(flows int, lanes []*passTurns) error {
	by := map[string][]float64{}
	for _, l := range lanes {
		by[l.name] = l.ns
		if l.name != passSending && float64(l.arrived) < (1-mostLost)*float64(l.sent) {
			return fmt.Errorf("%s: %d packets were sent, and %d arrived", l.name, l.sent, l.arrived)
		}
		if l.passed == nil {
			continue
		}
		n, err := l.passed()
		if err == nil && float64(n) < (1-mostLost)*float64(l.arrived) {
			err = fmt.Errorf("%d packets arrived, and %d of them went this way", l.arrived, n)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	receive := func(name string) []float64 { return pairs(by[name], by[passSending], minus) }
	for _, l := range lanes {
		c := PassCost{Flows: flows, Way: l.name, Total: spreadOf(l.ns), Sent: l.sent, Arrived: l.arrived}
		c.Rate = 1e3 / c.Total.Median
		if l.name != passSending {
			c.Receive = spreadOf(receive(l.name))
			c.Ratio = pairwise(receive(l.name), receive(passKernel), over)
		}
		r.Measured = append(r.Measured, c)
	}
	return nil
}

// of is what a way took, by the number of flows.
func (r *Passes) of(way string) (out []PassCost) {
	for _, c := range r.Measured {
		if c.Way == way {
			out = append(out, c)
		}
	}
	return out
}
