package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/bench"
)

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what counting flows costs on this machine",
		Long: `Bench measures, and leaves nothing behind: all traffic stays in test runs of the
kernel and in network namespaces of its own. What is compared is measured in turns
in one run; only such ratios mean something on a machine with other work to do.`,
	}
	cmd.AddCommand(
		benchCommand("datapath", "Cost of each program and stage, beside hash maps", `Every program runs by BPF_PROG_TEST_RUN over packets of 1 to 1,048,576 flows, beside
an empty program and beside probes with a hash map. Then a full table is drained, and
its flows are exported. The budgets of the design are checked.`,
			func(ctx context.Context, cfg bench.Config) (report, error) { return bench.Datapath(ctx, cfg) }),
		benchCommand("probes", "Cost of whole probes on a veth pair, beside each other", `A generator sends packets of 1 to 1,000,000 flows at the same time over veth pairs in
network namespaces without a name: one pair without a probe, one for the agent with its
eBPF probe, one for its AF_PACKET probe and, where they are installed, one each for
softflowd and tcpdump. Shown are what a packet costs in the kernel, what the process
takes, and whether every packet was counted.`,
			func(ctx context.Context, cfg bench.Config) (report, error) {
				self, err := os.Executable()
				if err != nil {
					return nil, err
				}
				return bench.Probes(ctx, cfg, self)
			}),
		benchCommand("pdm", "Cost of marking and reading PDM, and what TCP makes of it", `Every stage runs by BPF_PROG_TEST_RUN over packets of 1 to 65,536 flows and of new ones,
over an empty program and beside the same program with PDM off. Then iperf3 sends TCP
over veth pairs in network namespaces, an agent on both hosts: unmarked, a mark for each
burst, no bursts, and a mark for each packet. The budgets of the design are checked, and
the figures of draft-elkins-v6ops-bpf-pdm-ebpf stand beside.`,
			func(ctx context.Context, cfg bench.Config) (report, error) {
				self, err := os.Executable()
				if err != nil {
					return nil, err
				}
				return bench.PDM(ctx, cfg, self)
			}),
	)
	return cmd
}

// report is what a benchmark found.
type report interface {
	WriteText(io.Writer) error
	WritePlots(dir string) error
}

func benchCommand(name, short, long string, run func(context.Context, bench.Config) (report, error)) *cobra.Command {
	var quick bool
	var out string
	var output outputFlag
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long,
		Example: "  waymark bench " + name + " --quick\n  waymark bench " + name + " --out docs/explanation/benchmarks",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			cfg := bench.Default()
			cfg.Quick = quick
			cfg.Progress = func(what string) { fmt.Fprintln(cmd.ErrOrStderr(), what) }
			r, err := run(ctx, cfg)
			if err != nil {
				return fmt.Errorf("bench %s: %w", name, err)
			}
			if out != "" {
				if err := saveReport(out, name, r); err != nil {
					return fmt.Errorf("bench %s: %w", name, err)
				}
			}
			if output.format == outputJSON {
				return writeReportJSON(cmd.OutOrStdout(), r)
			}
			return r.WriteText(cmd.OutOrStdout())
		},
	}
	output.register(cmd, outputTable, outputJSON)
	cmd.Flags().BoolVar(&quick, "quick", false, "fewer flows and rounds: a minute instead of several")
	cmd.Flags().StringVar(&out, "out", "", "also write tables, JSON and plots into this folder")
	return cmd
}

func writeReportJSON(w io.Writer, r report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// saveReport writes NAME.md, NAME.json and the plots.
func saveReport(dir, name string, r report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for file, write := range map[string]func(io.Writer) error{
		name + ".md":   r.WriteText,
		name + ".json": func(w io.Writer) error { return writeReportJSON(w, r) },
	} {
		f, err := os.Create(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		if err := write(f); err != nil {
			f.Close()
			return fmt.Errorf("writing %s: %w", f.Name(), err)
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return r.WritePlots(dir)
}
