// Command waymark-bench repeats the measurements of docs/explanation on this machine. Input: the name of a benchmark
// and, for those that run whole agents, the waymark binary. Output: tables or JSON on stdout, progress on stderr, and
// files for the documentation. It is a program of its own so that the agent contains neither test programs nor plots.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/bench"
	"github.com/waymark-net/waymark/internal/kernel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	started := false
	if err := newCommand(&started).ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "waymark-bench: %v\n", err)
		os.Exit(exitCode(err, started))
	}
}

// exitCode is as waymark's: 1 failure, 2 usage error, 3 missing privilege or kernel feature.
func exitCode(err error, started bool) int {
	switch {
	case !started:
		return 2
	case errors.Is(err, kernel.ErrMissing), errors.Is(err, fs.ErrPermission), errors.Is(err, ebpf.ErrNotSupported):
		return 3
	}
	return 1
}

// benchmark is one command. agent: it runs whole agents.
type benchmark struct {
	name, short, long string
	agent             bool
	run               func(ctx context.Context, cfg bench.Config, agent string) (report, error)
}

var benchmarks = []benchmark{
	{
		"datapath", "Cost of each program and stage, compared with hash maps",
		`Every program runs by BPF_PROG_TEST_RUN over packets of 1 to 1,048,576 flows, alongside
an empty program and probes that use a hash map. Then a full table is drained, and its
flows are exported. The budgets of the design are checked.`, false,
		func(ctx context.Context, cfg bench.Config, _ string) (report, error) { return bench.Datapath(ctx, cfg) },
	},
	{
		"probes", "Cost of whole probes on a veth pair, compared with each other",
		`A generator sends packets of 1 to 1,000,000 flows at the same time over veth pairs in
unnamed network namespaces: one pair without a probe, one for the agent with its eBPF
probe, one for its AF_PACKET probe and, where they are installed, one each for softflowd
and tcpdump. The report shows what a packet costs in the kernel, what the process takes,
and whether every packet was counted.`, true,
		func(ctx context.Context, cfg bench.Config, agent string) (report, error) {
			return bench.Probes(ctx, cfg, agent)
		},
	},
	{
		"pdm", "Cost of marking and reading PDM, and its effect on TCP",
		`Every stage runs by BPF_PROG_TEST_RUN over packets of 1 to 65,536 flows and of new ones,
over an empty program and alongside the same program without PDM. Then iperf3 sends TCP
over veth pairs in network namespaces with an agent on both hosts: unmarked, a mark for
each burst, no bursts, and a mark for each packet. The budgets of the design are checked;
the figures of draft-elkins-v6ops-bpf-pdm-ebpf are shown for comparison.`, true,
		func(ctx context.Context, cfg bench.Config, agent string) (report, error) {
			return bench.PDM(ctx, cfg, agent)
		},
	},
	{
		"ioam", "Cost of IOAM at each node of a chain, and its effect on throughput",
		`The programs of a transit node run by BPF_PROG_TEST_RUN over packets with a trace, over an
empty program. Then packets with traces pass chains of five network namespaces, whose
routers are Linux's own transit node, the programs at tc and at XDP, or ignore traces.
Then TCP passes a chain with an agent on each node: with IOAM registered, traces in 0.01 to
100 % of the packets, 1 to 11 options and 1 to 7 namespaces. The budgets of the design are
checked; the figures of the first implementation in Linux are shown for comparison.`, true,
		func(ctx context.Context, cfg bench.Config, agent string) (report, error) {
			return bench.IOAM(ctx, cfg, agent)
		},
	},
	{
		"drop", "Cost of dropping a packet, by each way to do it",
		`A generator sends UDP datagrams over veth pairs in unnamed network namespaces, and a rule
drops all of them: of iptables, of nftables at netdev ingress, of Waymark at tc, generic and native XDP,
and of xdp-filter, as it loads by default and for UDP only, as far as they are installed; and
programs that only drop, as the least that a hook takes. Ways take turns on one processor, and
each must have dropped what was sent.`, false,
		func(ctx context.Context, cfg bench.Config, _ string) (report, error) { return bench.Drop(ctx, cfg) },
	},
	{
		"rules", "Cost of dropping a packet behind many rules, compared with nftables",
		`As drop, for rule sets of 1 to 10,000 rules, as many as the gate takes, and for sets of 10 to
100,000 addresses, by Waymark at native XDP and by nftables at netdev ingress. The packets match
the last rule only.`, false,
		func(ctx context.Context, cfg bench.Config, _ string) (report, error) { return bench.Rules(ctx, cfg) },
	},
	{
		"jit", "Cost of dropping a packet with the compiler for BPF, and without",
		`As drop, for programs at XDP that the kernel compiles, and the same programs as its interpreter
runs them. net.core.bpf_jit_enable is 0 while these are loaded. The kernel must have an
interpreter, as Debian's has: many are built without (CONFIG_BPF_JIT_ALWAYS_ON).`, false,
		func(ctx context.Context, cfg bench.Config, _ string) (report, error) { return bench.JIT(ctx, cfg) },
	},
	{
		"hints", "Cost of hints, and what it saves not to read a packet",
		`What no driver knows is computed, by BPF_PROG_TEST_RUN over an empty program. Then programs drop
all packets that arrive on veth pairs in unnamed network namespaces: one reads nothing, one
parses, one asks the driver; packets that are in the cache, that the processor evicted, and
that another processor wrote. veth has no hints in hardware: the report says what it can show.`, false,
		func(ctx context.Context, cfg bench.Config, _ string) (report, error) { return bench.Hints(ctx, cfg) },
	},
	{
		"forward", "Cost of forwarding a packet, by each way to do it",
		`A generator sends UDP datagrams over veth pairs in unnamed network namespaces to a router with
1 to 100,000 routes, which sends them on to a sink: the kernel, without and with connection
tracking and a flow table, xdp-forward, and Waymark at native XDP, as far as they are available. Ways take turns
on one processor, and what was sent must arrive. The budgets of the design are checked.`, false,
		func(ctx context.Context, cfg bench.Config, _ string) (report, error) { return bench.Forward(ctx, cfg) },
	},
	{
		"balance", "Cost of balancing a packet, by each way to do it",
		`As forward, for packets of 1 to 1,000,000 connections to a service with three backends: nftables that
rewrites addresses, IPVS, and Waymark with each way to reach a backend, next to the kernel that only forwards.`, false,
		func(ctx context.Context, cfg bench.Config, _ string) (report, error) { return bench.Balance(ctx, cfg) },
	},
	{
		"history", "Records on disk: ingest, bytes per record, answers over 24 hours",
		`Five million records of 24 hours are written to a temporary directory, as the agent writes
them: to the log, and by the hour to sealed files. Then some of them are asked for, five
times each. All of it runs on one processor.`, false,
		func(ctx context.Context, cfg bench.Config, _ string) (report, error) { return bench.History(ctx, cfg) },
	},
}

func newCommand(started *bool) *cobra.Command {
	root := &cobra.Command{
		Use:   "waymark-bench",
		Short: "Measure what Waymark costs on this machine",
		Long: `waymark-bench leaves nothing behind: all traffic stays in test runs of the kernel and in
network namespaces of its own. What is compared is measured in turns in one run; only
such ratios are meaningful on a shared machine.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	for _, b := range benchmarks {
		root.AddCommand(b.command(started))
	}
	return root
}

// report is what a benchmark found.
type report interface {
	WriteText(io.Writer) error
	WritePlots(dir string) error
}

func (b benchmark) command(started *bool) *cobra.Command {
	var quick, asJSON bool
	var out, agent string
	cmd := &cobra.Command{
		Use: b.name, Short: b.short, Long: b.long, Args: cobra.NoArgs,
		Example: "  waymark-bench " + b.name + " --quick\n  waymark-bench " + b.name + " --out docs/explanation/benchmarks",
		RunE: func(cmd *cobra.Command, _ []string) error {
			*started = true
			if b.agent {
				var err error
				if agent, err = findAgent(agent); err != nil {
					return err
				}
			}
			cfg := bench.Default()
			cfg.Quick = quick
			cfg.Progress = func(what string) { fmt.Fprintln(cmd.ErrOrStderr(), what) }
			r, err := b.run(cmd.Context(), cfg, agent)
			if err == nil && out != "" {
				err = save(out, b.name, r)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", b.name, err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), r)
			}
			return r.WriteText(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "fewer flows and rounds: a minute instead of several")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON instead of tables")
	cmd.Flags().StringVar(&out, "out", "", "also write tables, JSON and plots into this `FOLDER`")
	if b.agent {
		cmd.Flags().StringVar(&agent, "agent", "", "`PATH` of the waymark binary; default: the one in the same folder, else in $PATH")
	}
	return cmd
}

// findAgent is the waymark binary that a benchmark runs.
func findAgent(path string) (string, error) {
	if path != "" {
		return exec.LookPath(path)
	}
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "waymark")); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("waymark")
	if err != nil {
		return "", fmt.Errorf("find the agent: %w; name it with --agent PATH", err)
	}
	return path, nil
}

func writeJSON(w io.Writer, r report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// save writes NAME.md, NAME.json and the plots.
func save(dir, name string, r report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for file, write := range map[string]func(io.Writer) error{
		name + ".md":   r.WriteText,
		name + ".json": func(w io.Writer) error { return writeJSON(w, r) },
	} {
		f, err := os.Create(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		if err := errors.Join(write(f), f.Close()); err != nil {
			return fmt.Errorf("write %s: %w", f.Name(), err)
		}
	}
	return r.WritePlots(dir)
}
