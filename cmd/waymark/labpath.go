package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/wire"
)

// pathFlags say what the wire of the topology path does.
type pathFlags struct {
	set *pflag.FlagSet

	delay, back               time.Duration
	match                     string
	loss, duplicate, reorders uint64
}

func registerPathFlags(cmd *cobra.Command) *pathFlags {
	p := &pathFlags{set: pflag.NewFlagSet("path", pflag.ContinueOnError)}
	command.DurationVar(p.set, &p.delay, "delay", 0, "path: delay in each direction, such as 20ms")
	command.DurationVar(p.set, &p.back, "delay-back", 0, "path: delay from beta to alpha (default: as --delay)")
	p.set.StringVar(&p.match, "match", "ip", "path: packets to which the --…-every flags apply: "+wire.Matches)
	p.set.Uint64Var(&p.loss, "loss-every", 0, "path: drop every `N`-th packet in each direction")
	p.set.Uint64Var(&p.duplicate, "duplicate-every", 0, "path: duplicate every `N`-th packet in each direction")
	p.set.Uint64Var(&p.reorders, "reorder-every", 0, "path: swap every `N`-th packet with the next in each direction")
	cmd.Flags().AddFlagSet(p.set)
	return p
}

func (p *pathFlags) config() (wire.Config, error) {
	match, err := wire.ParseMatch(p.match)
	if err != nil {
		return wire.Config{}, err
	}
	d := wire.Direction{Delay: p.delay, Match: match, DropEvery: p.loss, DuplicateEvery: p.duplicate, ReorderEvery: p.reorders}
	cfg := wire.Config{AB: d, BA: d}
	if p.set.Lookup("delay-back").Changed {
		cfg.BA.Delay = p.back
	}
	return cfg, cfg.Validate()
}

// given are the flags that the user gave.
func (p *pathFlags) given() []*pflag.Flag {
	var given []*pflag.Flag
	p.set.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			given = append(given, f)
		}
	})
	return given
}

// startRelay runs this program again, in the background, to move the frames.
func startRelay(l *lab.Lab, path *pathFlags) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	args := []string{"lab", "relay", "--prefix=" + l.Config().Prefix}
	for _, f := range path.given() {
		args = append(args, "--"+f.Name+"="+f.Value.String())
	}
	return l.StartRelay(exec.Command(self, args...))
}

// newLabRelayCommand is what lab up path starts.
func newLabRelayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "relay",
		Short:  "Move the frames of a path; lab up path starts it",
		Hidden: true,
	}
	prefix := labPrefix(cmd)
	path := registerPathFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := path.config()
		if err != nil {
			return command.UsageErrorf("lab relay: %w", err)
		}
		l, err := lab.Open(*prefix)
		if err != nil {
			return labError("relay", err)
		}
		relay, err := l.NewRelay(cfg, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
		if err != nil {
			return labError("relay", err)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		return labError("relay", l.ServeRelay(ctx, relay))
	}
	return cmd
}
