package main

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/config"
)

func newRunCommand() *cobra.Command {
	var flags configFlags
	var options runOptions
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent: count every packet on the interfaces into flows",
		Long: `Run loads the probe, attaches it to the interfaces, and exports flow records until
SIGTERM or SIGINT. Then it drains the last interval, exports all flows and detaches.
A second signal, more than one second later, ends it immediately. If no interface is
named, it counts on those that have a default route.

SIGHUP reloads the configuration without losing a packet; the log names changed keys
that need a restart. SIGHUP also reopens output files after log rotation, and renews
policies of stages that otherwise expire.

The file is overridden by WAYMARK_… variables, and these by flags; waymark config dump
shows the effective values and their sources.`,
		Example: `  waymark run
  waymark run -i eth0
  waymark run --config /etc/waymark/waymark.yaml
  waymark run -i eth0 --for 60s --set 'export=[{jsonl: {path: flows.jsonl}}]'
  waymark run -i 'veth*' --netns all --set flow.scan_interval=1s --set 'export=[{jsonl: {path: "-"}}]'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, origins, err := flags.Load(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("for") && limit < time.Second {
				return command.UsageErrorf("run: --for %v: the minimum is 1s", limit)
			}
			options.level.Set(command.Level(cfg.Log))
			log := command.NewLogger(cfg.Log, &options.level, cmd.ErrOrStderr())
			if err := defaultInterfaces(&cfg, log); err != nil {
				return err
			}
			options.origins = origins
			options.load = func() (config.Config, config.Origins, error) {
				next, origins, err := flags.Load(cmd.ErrOrStderr())
				if err == nil {
					err = defaultInterfaces(&next, log)
				}
				return next, origins, err
			}
			return runAgent(cmd.Context(), cfg, &options, newStopper(log, limit))
		},
	}
	flags.register(cmd)
	command.DurationVar(cmd.Flags(), &limit, "for", 0, "count for `TIME`, such as 60s, then stop as after SIGTERM")
	cmd.Flags().BoolVar(&options.profile, "pprof", false, "serve profiles of the agent at /debug/pprof/ on the API socket, for root and the agent's user")
	cmd.Flags().BoolVar(&options.keepPrivileges, "keep-privileges", false, "keep the capabilities that are only needed to start")
	return cmd
}

// runOptions are what waymark run takes in addition to the configuration.
type runOptions struct {
	keepPrivileges bool
	profile        bool
	level          slog.LevelVar
	origins        config.Origins
	load           func() (config.Config, config.Origins, error) // reads the configuration again
}

// maxProcs is how many processors the agent uses at most, unless GOMAXPROCS says
// otherwise: it serves the host, it does not compete with it.
const maxProcs = 4

// runAgent runs until the stopper ends it.
func runAgent(ctx context.Context, cfg config.Config, options *runOptions, stop *stopper) error {
	log := stop.log
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) > maxProcs {
		runtime.GOMAXPROCS(maxProcs)
	}
	if !options.profile {
		runtime.MemProfileRate = 0 // nobody can ask for the samples, which take 1 MB
	}
	// A reader of stdout that leaves is an exporter's loss, not the agent's end.
	signal.Ignore(syscall.SIGPIPE)
	ctx, release := stop.context(ctx)
	defer release()

	a, err := agent.New(cfg, agent.Deps{
		Log: log, Clock: time.Now, DropPrivileges: !options.keepPrivileges, Origins: options.origins, Profile: options.profile,
		Ready: func(reason error) {
			stop.counting()
			reportReady(log, &cfg, reason)
		},
	})
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	// Collecting garbage more often is better than being killed.
	if limit := a.HeapLimit(); limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(a.HeapGrowth())
	}
	go onHangup(ctx, func() {
		command.Notify(log, "RELOADING=1")
		defer command.Notify(log, "READY=1")
		a.Reopen()
		reload(a, options, log)
		if err := a.Renew(); err != nil {
			log.Error("renewing the policies of stages", "error", err)
		}
	})
	if err := a.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

// reportReady reports readiness to systemd and to the log. READY=1 is sent even if an
// interface is missing: units that depend on the agent must not wait for a cable.
func reportReady(log *slog.Logger, cfg *config.Config, reason error) {
	if reason != nil {
		command.Notify(log, "READY=1\nSTATUS=not ready: "+reason.Error())
		log.Warn("not ready", "reason", reason)
		return
	}
	command.Notify(log, "READY=1\nSTATUS=counting on "+strings.Join(cfg.InterfaceTexts(), ", "))
	log.Info("ready", "interfaces", strings.Join(cfg.InterfaceTexts(), ","), "socket", cfg.API.Socket)
}

// reload applies the configuration as it is now, and logs what came of it.
func reload(a *agent.Agent, options *runOptions, log *slog.Logger) {
	next, origins, err := options.load()
	var applied, restart []config.Change
	if err == nil {
		applied, restart, err = a.Reload(next, origins)
	}
	if err != nil {
		log.Error("configuration not reloaded: the agent keeps the current one", "error", err)
		return
	}
	options.level.Set(command.Level(next.Log))
	for _, c := range applied {
		log.Info("configuration changed", "key", c.Key, "from", c.Old, "to", c.New)
	}
	for _, c := range restart {
		log.Warn("configuration changed, but this key needs a restart", "key", c.Key, "running", c.Old, "configured", c.New)
	}
	log.Info("configuration reloaded", "changed", len(applied), "need_restart", len(restart))
}
