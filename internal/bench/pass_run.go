package bench

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/waymark-net/waymark/internal/balance"
	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/test/interp"
)

// PassRun is what the program at XDP takes for a packet that it passes on, by BPF_PROG_TEST_RUN.
type PassRun struct {
	Flows int    `json:"flows"`
	What  string `json:"what"`
	Over  Spread `json:"over_ns"` // the empty program, in the same round
	// Instructions of a packet of a known flow and connection over the empty program, and calls of helpers.
	Instructions float64 `json:"instructions"`
	Helpers      float64 `json:"helpers"`
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
		one := PassRun{Flows: packets.flows, What: r.name, Over: pairwise(r.values, r.before, minus)}
		if err := r.count(&one); err != nil {
			return nil, fmt.Errorf("%s: counting instructions: %w", r.name, err)
		}
		out = append(out, one)
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

// count has an interpreter run the program on packets of one flow. A batch of packets is accounted together.
func (r *passRun) count(out *PassRun) error {
	const packets, empty = 64, 2
	vm, err := interp.New()
	if err != nil {
		return err
	}
	defer vm.Close()
	if vm.Jiffies, err = jiffies(); err != nil {
		return err
	}
	in, leaves := r.lane.in.Attrs(), r.lane.out.Attrs()
	vm.Route = interp.Route{IfIndex: uint32(leaves.Index), MTU: uint16(leaves.MTU), From: [6]byte(leaves.HardwareAddr), To: [6]byte{2, 0, 0, 0, 0, 1}}
	for i := range 2 * packets {
		verdict, cost, err := vm.RunXDP(r.work, r.lane.frame(), uint32(in.Index))
		if err != nil {
			return err
		}
		if i < packets { // the first one goes to the kernel, since none to its neighbour has for a while
			continue
		}
		if verdict != xdpRedirect {
			return fmt.Errorf("the verdict is %d", verdict)
		}
		out.Instructions += float64(cost.Instructions-empty) / packets
		out.Helpers += float64(cost.Helpers) / packets
	}
	return nil
}

// jiffies is the kernel's counter of ticks; programs use its lower 32 bits.
func jiffies() (uint64, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.FnJiffies64.Call(), asm.Return()}})
	if err != nil {
		return 0, fmt.Errorf("asking for the kernel's ticks: %w", err)
	}
	defer p.Close()
	now, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
	return uint64(now), err
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
	// struct forward_port and enum forward_flag of bpf/forward/abi.h; ports are first in both maps.
	const (
		hidesTags = 1 << 3
		places    = 256
		size      = 16
		flags     = 4
	)
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
		memory := make([]byte, about.ValueSize)
		if err := m.Lookup(uint32(0), &memory); err != nil {
			return err
		}
		for i := range places {
			at := memory[i*size+flags:]
			binary.NativeEndian.PutUint32(at, binary.NativeEndian.Uint32(at)&^hidesTags)
		}
		if err := m.Put(uint32(0), memory); err != nil {
			return err
		}
	}
	return nil
}
