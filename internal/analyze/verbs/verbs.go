// Package verbs is the command line of waymark-analyze, the program that waymark analyze runs. Input: arguments, variables
// and a configuration file. Output: as of waymark. Callers: cmd/waymark-analyze, and what writes the reference.
package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/analyze"
	"github.com/waymark-net/waymark/internal/analyze/settings"
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/config"
)

// Execute runs a command line, without the name of the program: what follows waymark analyze.
func Execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "waymark", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(New())
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	root.CompletionOptions.DisableDefaultCmd = true
	started := command.Finish(root, nil)
	// Its command is one of waymark, by name: errors and help say waymark analyze.
	at := 0
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		at = 1
	}
	return command.Execute(root, started, slices.Insert(slices.Clone(args), at, "analyze"), stdin, stdout, stderr)
}

// New is the command analyze with all below it.
func New() *cobra.Command {
	var flags command.Configuration
	cmd := &cobra.Command{
		Use:   "analyze",
		Short: "Run the analyzer: keep the records of many hosts, and answer for all of them",
		Long: `Analyze takes the intervals of agents that have an exporter analyzer, over TLS with
client certificates, keeps them on disk by host, and serves the same API and console
as an agent, with the records of all hosts: waymark flows --by host,service, waymark
status and waymark console work with its socket.

Each interval is kept exactly once, whichever side is killed at any time. While the
analyzer is not reachable, agents keep intervals on their own disk.

It also receives NetFlow, IPFIX and sFlow of devices without an agent (analyze.receive).

The CA of the analyzer is made at the first start, below analyze.path. A host joins
with a token: waymark analyze token NAME here, and waymark join URL TOKEN there.`,
		Example: `  waymark analyze --config /etc/waymark/analyze.yaml
  waymark analyze --config analyze.yaml --set analyze.names=analyzer.example`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := analyzerConfig(cmd, &flags)
			if err != nil {
				return err
			}
			return runAnalyzer(cmd, cfg)
		},
	}
	flags.Register(cmd)
	cmd.AddCommand(newTokenCommand(), newInitCommand())
	return cmd
}

func analyzerConfig(cmd *cobra.Command, flags *command.Configuration) (config.Config, error) {
	cfg, origins, err := flags.Load(cmd.ErrOrStderr())
	if err != nil {
		return cfg, err
	}
	return cfg, settings.Adapt(&cfg, origins)
}

func runAnalyzer(cmd *cobra.Command, cfg config.Config) error {
	var level slog.LevelVar
	level.Set(command.Level(cfg.Log))
	log := command.NewLogger(cfg.Log, &level, cmd.ErrOrStderr())
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	a, err := analyze.New(cfg, analyze.Deps{Log: log, Clock: time.Now, Ready: func() { command.Notify(log, "READY=1") }})
	if err != nil {
		return fmt.Errorf("analyze: %w", err)
	}
	defer context.AfterFunc(ctx, func() { command.Notify(log, "STOPPING=1") })()
	if err := a.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("analyze: %w", err)
	}
	return nil
}

func newTokenCommand() *cobra.Command {
	var flags command.Configuration
	var valid time.Duration
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Print a token with which one host may join under a name",
		Long: `Token prints a token that is valid once and for a short time. On the host, waymark join
with it makes a key and gets the certificate that names the host. The analyzer keeps
only a hash of the token. It need not be stopped.`,
		Example: `  waymark analyze token athos
  waymark analyze token athos --valid 15m --config /etc/waymark/analyze.yaml`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := analyzerConfig(cmd, &flags)
			if err != nil {
				return err
			}
			own := settings.Section.Of(&cfg)
			now := time.Now()
			authority, err := analyze.OpenAuthority(own.Path, now)
			if err != nil {
				return fmt.Errorf("analyze token: %w; run it as the user of the analyzer", err)
			}
			token, err := analyze.OpenTokens(own.Path).New(args[0], authority.Fingerprint(), now.Add(valid))
			if err != nil {
				return fmt.Errorf("analyze token: %w", err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		},
	}
	flags.Register(cmd)
	command.DurationVar(cmd.Flags(), &valid, "valid", time.Hour, "the token may be used for `TIME`, such as 15m")
	return cmd
}

func newInitCommand() *cobra.Command {
	var flags command.Configuration
	cmd := &cobra.Command{
		Use:     "init",
		Short:   "Make the CA of the analyzer, unless there is one, and print its fingerprint",
		Example: `  waymark analyze init --config /etc/waymark/analyze.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := analyzerConfig(cmd, &flags)
			if err != nil {
				return err
			}
			authority, err := analyze.OpenAuthority(settings.Section.Of(&cfg).Path, time.Now())
			if err != nil {
				return fmt.Errorf("analyze init: %w", err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%x\n", authority.Fingerprint())
			return err
		},
	}
	flags.Register(cmd)
	return cmd
}
