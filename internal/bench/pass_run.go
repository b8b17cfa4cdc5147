package bench

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/balance"
	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/datapath"
)

// PassRun is what the program at XDP takes for a packet that it passes on, by BPF_PROG_TEST_RUN.
type PassRun struct {
	Flows int    `json:"flows"`
	What  string `json:"what"`
	Over  Spread `json:"over_ns"` // the empty program, in the same round
}

// passWork is work of a program at XDP.
type passWork struct {
	name  string
	start func(l *passLane) (*datapath.Datapath, passing, error)
}

const (
	workL2      = "balance, L2"
	xdpRedirect = 4
	runPackets  = 100_000 // of a round, at least
)

func forwardWork() []passWork {
	return []passWork{{"forward", func(l *passLane) (*datapath.Datapath, passing, error) { return l.startForwarder() }}}
}

func balanceWork() (all []passWork) {
	for _, w := range []struct {
		name string
		how  balance.Forwarding
	}{{workL2, balance.L2}, {"balance, IPIP", balance.IPIP}, {"balance, GUE", balance.GUE}} {
		all = append(all, passWork{w.name, func(l *passLane) (*datapath.Datapath, passing, error) { return l.startBalancer(w.how) }})
	}
	return all
}

// passRun is a program that runs again and again, and the empty one.
type passRun struct {
	name           string
	lane           *passLane
	passing        passing
	work           *ebpf.Program
	collections    [2]*ebpf.Collection
	values, before []float64
}

// measureRuns has programs take turns with packets of so many flows.
func measureRuns(packets passPackets, rounds int, work []passWork) (out []PassRun, err error) {
	var runs []*passRun
	defer func() {
		for _, r := range runs {
			r.close()
		}
	}()
	for _, w := range work {
		r := &passRun{name: w.name}
		runs = append(runs, r)
		if err := r.open(packets, w); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	for round := range warmUps + rounds {
		for _, r := range runs {
			if err := r.visit(round); err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	for _, r := range runs {
		out = append(out, PassRun{packets.flows, r.name, pairwise(r.values, r.before, minus)})
	}
	return out, nil
}

func (r *passRun) open(packets passPackets, w passWork) (err error) {
	if r.lane, err = newPassLane(packets); err != nil {
		return err
	}
	d, passing, err := w.start(r.lane)
	if err != nil {
		return err
	}
	r.passing = passing
	if r.work, err = d.Copy(datapath.Early); err != nil {
		return err
	}
	if err := showTags(r.work); err != nil {
		return err
	}
	for i := range r.collections {
		spec, err := program.Pass()
		if err != nil {
			return err
		}
		loadOnly(spec, "pass_again", "pass_empty")
		if err := r.lane.set(spec, 0); err != nil {
			return err
		}
		if r.collections[i], err = ebpf.NewCollection(spec); err != nil {
			return err
		}
		next := []*ebpf.Program{r.collections[i].Programs["pass_empty"], r.work}[i]
		if err := r.collections[i].Maps["bench_next"].Put(uint32(0), next); err != nil {
			return fmt.Errorf("chaining %s: %w", next, err)
		}
	}
	return nil
}

func (r *passRun) visit(round int) error {
	n := runPackets
	if round < warmUps {
		n = max(n, r.lane.packets.flows)
	}
	frame, index := r.lane.frame(), r.lane.in.Attrs().Index
	opts := &ebpf.RunOptions{Data: frame, Context: [6]uint32{0, uint32(len(frame)), 0, uint32(index)}, Repeat: uint32(n)}
	var ns [2]float64
	if err := r.lane.router.do(probeProcessor, func() (err error) {
		for i, c := range r.collections {
			// A packet now and then is the kernel's; when it is the last one, the run ends with that verdict.
			if ns[i], err = timedRun(c.Programs["pass_again"], opts, xdpRedirect); err != nil {
				ns[i], err = timedRun(c.Programs["pass_again"], opts, xdpRedirect)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if round < warmUps-1 {
		return r.passing.settle()
	}
	if round < warmUps {
		return nil
	}
	r.before, r.values = append(r.before, ns[0]), append(r.values, ns[1])
	return nil
}

func (r *passRun) close() {
	for _, c := range r.collections {
		if c != nil {
			c.Close()
		}
	}
	if r.work != nil {
		r.work.Close()
	}
	if r.passing.stop != nil {
		_ = r.passing.stop()
	}
	if r.lane != nil {
		r.lane.close()
	}
}

// showTags tells a program that frames come with their tags: a copy that may be run is bound to no device, and cannot ask
// for those of veth.
func showTags(p *ebpf.Program) error {
	// struct forward_port and enum forward_flag of bpf/forward/abi.h
	const hidesTags = 1 << 3
	var ports [256]struct {
		Iface, Flags uint32
		Rest         [8]byte
	}
	info, err := p.Info()
	if err != nil {
		return err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return err
		}
		defer m.Close()
		about, err := m.Info()
		if err != nil {
			return err
		}
		if about.Name != ".data.forward" && about.Name != ".data.balance" {
			continue
		}
		if err := m.Lookup(uint32(0), &ports); err != nil {
			return err
		}
		for i := range ports {
			ports[i].Flags &^= hidesTags
		}
		if err := m.Put(uint32(0), &ports); err != nil {
			return err
		}
	}
	return nil
}
