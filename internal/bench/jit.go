package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cilium/ebpf/link"

	"github.com/waymark-net/waymark/internal/gate"
	"github.com/waymark-net/waymark/internal/kernel"
)

// JITReport compares programs that the kernel compiled with the same programs in its interpreter.
type JITReport struct {
	Run
	Packets  int          `json:"packets"` // of a round
	Rounds   int          `json:"rounds"`
	Measured []JITCost    `json:"measured"`
	Absent   []AbsentTool `json:"absent"`
}

// JITCost is what it takes one way to drop a packet.
type JITCost struct {
	Way          string `json:"way"`
	Total        Spread `json:"ns"`            // a packet sent and received, processor time
	OverCompiled Spread `json:"over_compiled"` // the same, over that of the compiled program in the same round
	OverIptables Spread `json:"over_iptables"` // packets per second, over those of iptables in the same round
	Sent         uint64 `json:"sent"`
	Dropped      uint64 `json:"dropped"` // as the way counts
	Counts       bool   `json:"counts"`  // false: it does not
}

// interpreted ends the names of ways without compiler.
const interpreted = ", interpreted"

// JIT measures programs with and without compiler.
func JIT(ctx context.Context, cfg Config) (*JITReport, error) {
	run, err := begin("jit", cfg)
	if err != nil {
		return nil, err
	}
	if err := checkInterpreter(); err != nil {
		return nil, err
	}
	r := &JITReport{Run: run, Packets: 20_000, Rounds: 21}
	if cfg.Quick {
		r.Packets, r.Rounds = 5000, 3
	}
	compiled := []dropper{
		{name: onlyDrops, start: xdpStarter(link.XDPDriverMode)},
		{name: "an XDP program that parses and drops, native", start: parsedStarter},
		{name: dropWaymark, start: gateStarter(gate.ModeNative)},
	}
	ways := []dropper{{name: dropIptables, needs: "iptables-legacy", start: startIptables}}
	for _, d := range compiled {
		ways = append(ways, d, dropper{name: d.name + interpreted, start: withoutCompiler(d.start)})
	}
	all := &DropReport{Run: Run{Name: run.Name}, Packets: r.Packets, Rounds: r.Rounds}
	if err := all.measure(ctx, cfg, ways); err != nil {
		return nil, err
	}
	r.Absent = all.Absent
	for _, c := range all.Measured {
		r.Measured = append(r.Measured, jitCost(&c, all.rounds))
	}
	r.end()
	return r, nil
}

func jitCost(c *DropCost, rounds map[string][]float64) JITCost {
	out := JITCost{Way: c.Way, Total: c.Total, Sent: c.Sent, Dropped: c.Dropped, Counts: c.Counts}
	if name, ok := strings.CutSuffix(c.Way, interpreted); ok {
		out.OverCompiled = pairwise(rounds[c.Way], rounds[name], over)
	}
	if rounds[dropIptables] != nil {
		out.OverIptables = pairwise(rounds[dropIptables], rounds[c.Way], over)
	}
	return out
}

const jitSwitch = "/proc/sys/net/core/bpf_jit_enable"

// interpret has the kernel compile no program that f loads.
func interpret(f func() error) (err error) {
	was, err := os.ReadFile(jitSwitch)
	if err != nil {
		return fmt.Errorf("reading whether programs are compiled: %w", err)
	}
	if err := os.WriteFile(jitSwitch, []byte("0"), 0); err != nil {
		return fmt.Errorf("%w: the kernel has no interpreter for BPF (CONFIG_BPF_JIT_ALWAYS_ON), or refuses it: %w: use Debian's kernel", kernel.ErrMissing, err)
	}
	defer func() { err = errors.Join(err, os.WriteFile(jitSwitch, bytes.TrimSpace(was), 0)) }()
	return f()
}

func withoutCompiler(start starter) starter {
	return func(ctx context.Context, s *space, iface, dir string) (d dropping, err error) {
		err = interpret(func() (err error) {
			d, err = start(ctx, s, iface, dir)
			return err
		})
		return d, err
	}
}

// checkInterpreter loads a program that must not be compiled.
func checkInterpreter() error {
	return interpret(func() error {
		p, err := dropProgram("drop_early")
		if err != nil {
			return err
		}
		defer p.Close()
		info, err := p.Info()
		if err != nil {
			return fmt.Errorf("asking about a program: %w", err)
		}
		if n, err := info.JitedSize(); err == nil && n > 0 {
			return fmt.Errorf("%w: the kernel compiles programs for BPF although %s is 0", kernel.ErrMissing, jitSwitch)
		}
		return nil
	})
}

// WriteText writes the report as a text with a table.
func (r *JITReport) WriteText(w io.Writer) error {
	if err := r.Run.WriteText(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "UDP datagrams to a port that a rule drops: %d rounds of %d packets for each way, in turns, on one processor.\n"+
		"Median (lowest–highest of the rounds) of a packet that is sent and dropped.\n\n", r.Rounds, r.Packets)
	var rows [][]string
	for _, c := range r.Measured {
		row := []string{c.Way, c.Total.String(), "", "", "not counted"}
		if c.OverCompiled.Median != 0 {
			row[2] = c.OverCompiled.String()
		}
		if c.OverIptables.Median != 0 {
			row[3] = c.OverIptables.String()
		}
		if c.Counts {
			row[4] = "all"
		}
		rows = append(rows, row)
	}
	err := writeTable(w, []column{
		{"dropped by", false}, {"ns per packet", true}, {"time ÷ compiled", true}, {"rate ÷ iptables", true}, {"dropped, by its counter", false},
	}, rows)
	for _, a := range r.Absent {
		fmt.Fprintf(w, "\nnot measured: %s: %s\n", a.Probe, a.Why)
	}
	_, _ = fmt.Fprintf(w, "\n%s\n", slides)
	return err
}

// WritePlots draws nothing: the table is one row for each way.
func (r *JITReport) WritePlots(string) error { return nil }
