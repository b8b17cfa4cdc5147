package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/agent"
	"github.com/waymark-net/waymark/internal/config"
)

func newRunCommand() *cobra.Command {
	var flags configFlags
	keepPrivileges := false
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent: count every packet on the interfaces into flows",
		Long: `Run loads the probe, attaches it to the interfaces, and exports flow records until
SIGTERM or SIGINT. With no interface named it counts on those that have a default route. Then it drains the last interval, exports every flow and
detaches. A signal that comes more than a second later ends it at once. SIGHUP opens files anew, after log
rotation moved them away, and lets the policies of pdm begin anew, which end by
themselves.

Configuration comes from the file, then from WAYMARK_… variables, then from flags;
waymark config dump shows what holds and where it was set.`,
		Example: `  waymark run
  waymark run -i eth0
  waymark run --config /etc/waymark.yaml
  waymark run -i eth0 --for 60s --set 'export=[{jsonl: {path: flows.jsonl}}]'
  waymark run -i 'veth*' --netns all --set flow.scan_interval=1s --set 'export=[{jsonl: {path: "-"}}]'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := flags.load(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("for") && limit < time.Second {
				return usageErrorf("run: --for %v: the shortest is 1s", limit)
			}
			log := newLogger(cfg.Log, cmd.ErrOrStderr())
			if err := defaultInterfaces(&cfg, log); err != nil {
				return err
			}
			return runAgent(cmd.Context(), cfg, !keepPrivileges, newStopper(log, limit))
		},
	}
	flags.register(cmd)
	durationVar(cmd.Flags(), &limit, "for", 0, "stop after `TIME` as with SIGTERM, such as 60s")
	cmd.Flags().BoolVar(&keepPrivileges, "keep-privileges", false, "keep the capabilities that are needed only to start")
	return cmd
}

// maxProcs is how many processors the agent uses at most, unless GOMAXPROCS says
// otherwise: it serves the host, it does not compete with it.
const maxProcs = 4

// runAgent runs until the stopper ends it.
func runAgent(ctx context.Context, cfg config.Config, drop bool, stop *stopper) error {
	log := stop.log
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) > maxProcs {
		runtime.GOMAXPROCS(maxProcs)
	}
	// A reader of stdout that leaves is an exporter's loss, not the agent's end.
	signal.Ignore(syscall.SIGPIPE)
	ctx, release := stop.context(ctx)
	defer release()

	a, err := agent.New(cfg, agent.Deps{
		Log: log, Clock: time.Now, DropPrivileges: drop,
		Ready: func() {
			notify(log, "READY=1\nSTATUS=counting on "+strings.Join(cfg.InterfaceTexts(), ", "))
			log.Info("ready", "interfaces", strings.Join(cfg.InterfaceTexts(), ","), "socket", cfg.API.Socket)
		},
	})
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	// Collecting garbage more often is better than being killed.
	if limit := a.HeapLimit(); limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	go onHangup(ctx, log, func() {
		a.Reopen()
		if err := a.Renew(); err != nil {
			log.Error("renewing the policies of pdm", "error", err)
		}
	})
	if err := a.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

func newLogger(cfg config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	// The configuration allows only names that slog knows.
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
