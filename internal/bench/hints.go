package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/kernel"
)

// HintsReport is what hints cost, and what it saves not to read a packet.
type HintsReport struct {
	Run
	Rounds   int            `json:"rounds"`
	Packets  int            `json:"packets"`  // of a round, for each program
	Computed []HintCost     `json:"computed"` // by BPF_PROG_TEST_RUN
	Dropped  []HintsDropped `json:"dropped"`
	Read     []HintsDropped `json:"read"`              // by the clock in the programs
	Call     *Spread        `json:"call_ns,omitempty"` // of the driver, once; nil: the kernel has no hints
}

// HintCost is what it takes to compute what no driver has.
type HintCost struct {
	Name string `json:"name"`
	NS   Spread `json:"ns"` // over an empty program
}

// HintsDropped is a program that drops all packets, which arrive in one of three ways.
type HintsDropped struct {
	Packets string `json:"packets"`
	Program string `json:"program"`
	NS      Spread `json:"ns"`      // of a packet received, or within the program
	Over    Spread `json:"over_ns"` // the program that reads nothing, in the same round
	Rate    Spread `json:"rate"`    // packets in a time, over those of the program that parses
}

// The programs of the paper, and one that asks the driver again and again.
var hintPrograms = []struct{ name, program string }{
	{"drop", "drop_all"},
	{"parse and drop", "drop_parsed"},
	{"decide by a hint", "drop_hinted"},
	{"ask the driver 16 times", "drop_asked"},
}

const (
	hintParsed = 1 // in hintPrograms
	hintAsked  = 3
	hintAsks   = 16
)

// Ways in which packets arrive.
const (
	packetsHot    = "in the cache"
	packetsCold   = "evicted from the caches of the processor"
	packetsAcross = "written by another processor"
)

// Hints measures programs that read hints.
func Hints(ctx context.Context, cfg Config) (*HintsReport, error) {
	run, err := begin("hints", cfg)
	if err != nil {
		return nil, err
	}
	if !kernel.XDPHints.Has() {
		return nil, fmt.Errorf("%w: hints at XDP: Linux 6.3", kernel.ErrMissing)
	}
	r := &HintsReport{Run: run, Packets: 50_000, Rounds: 31}
	if cfg.Quick {
		r.Packets, r.Rounds = 20_000, 5
	}
	cfg.Progress("hints: values that are computed")
	if r.Computed, err = computedHints(r.Rounds); err != nil {
		return nil, err
	}
	if err := r.drop(ctx, cfg); err != nil {
		return nil, err
	}
	r.end()
	return r, nil
}

// computedHints runs what hints_read() does where no driver helps.
func computedHints(rounds int) ([]HintCost, error) {
	spec, err := program.Hints()
	if err != nil {
		return nil, err
	}
	for name := range spec.Programs {
		if name[:4] != "run_" {
			delete(spec.Programs, name)
		}
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("loading programs that compute hints: %w", err)
	}
	defer coll.Close()
	const times = 200_000
	ipv4, ipv6 := kinds()[0].frame, kinds()[2].frame
	runs := []struct {
		name, program string
		frame         []byte
		ns            []float64
	}{
		{"", "run_empty", ipv4, nil},
		{"receive time: the clock of the host", "run_time", ipv4, nil},
		{"hash, IPv4", "run_hash", ipv4, nil},
		{"hash, IPv6", "run_hash", ipv6, nil},
		{"VLAN tag", "run_vlan", ipv4, nil},
		{"32 bytes in front of the frame, left and taken away", "run_meta", ipv4, nil},
	}
	err = onProcessor(senderProcessor, func() error {
		for round := range rounds + 1 {
			for i := range runs {
				ns, err := timedRun(coll.Programs[runs[i].program], &ebpf.RunOptions{Data: runs[i].frame, Repeat: times}, xdpPass)
				if err != nil {
					return err
				}
				if round > 0 {
					runs[i].ns = append(runs[i].ns, ns)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out []HintCost
	for _, one := range runs[1:] {
		out = append(out, HintCost{one.name, pairwise(one.ns, runs[0].ns, minus)})
	}
	return out, nil
}

// hintsLane has one of the programs at its end.
type hintsLane struct {
	*lane
	cold *lane // the same, with another generator
	link link.Link
	coll *ebpf.Collection
}

func newHintsLane(which string, timed bool) (l *hintsLane, err error) {
	bare, err := newBareLane(1)
	if err != nil {
		return nil, err
	}
	l = &hintsLane{lane: bare}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	in, err := bare.r.to.handle.LinkByName(bare.name)
	if err != nil {
		return nil, err
	}
	index := in.Attrs().Index
	err = bare.r.to.do(probeProcessor, func() error {
		spec, err := program.Hints()
		if err != nil {
			return err
		}
		if err := spec.Variables["timed"].Set(timed); err != nil {
			return err
		}
		one := spec.Programs[which]
		if which == hintPrograms[2].program || which == hintPrograms[hintAsked].program {
			one.Ifindex = uint32(index)
			one.Flags |= unix.BPF_F_XDP_DEV_BOUND_ONLY
		}
		spec.Programs = map[string]*ebpf.ProgramSpec{which: one}
		if l.coll, err = ebpf.NewCollection(spec); err != nil {
			return fmt.Errorf("loading %s: %w", which, err)
		}
		l.link, err = link.AttachXDP(link.XDPOptions{Program: l.coll.Programs[which], Interface: index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attaching %s: %w", which, err)
	}
	return l, l.addCold()
}

// addCold loads the generator whose packets are in no cache when they arrive.
func (l *hintsLane) addCold() error {
	spec, err := program.Hints()
	if err != nil {
		return err
	}
	out, err := l.r.from.handle.LinkByName("out0")
	if err != nil {
		return err
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{"generate": spec.Programs["generate"]}
	k := kinds()[0]
	k.frame = l.frame
	if err := errors.Join(k.adapt(1)(spec), spec.Variables["cfg_ifindex"].Set(uint32(out.Attrs().Index))); err != nil {
		return err
	}
	cold := *l.lane
	if cold.programs, err = ebpf.NewCollection(spec); err != nil {
		return fmt.Errorf("loading the generator of cold packets: %w", err)
	}
	l.cold = &cold
	return nil
}

func (l *hintsLane) close() {
	if l.link != nil {
		_ = l.link.Close() // its namespace goes in any case
	}
	if l.coll != nil {
		l.coll.Close()
	}
	if l.cold != nil {
		l.cold.programs.Close()
	}
	l.r.close()
}
