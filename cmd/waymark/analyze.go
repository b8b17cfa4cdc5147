package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/analyze"
	"github.com/waymark-net/waymark/internal/config"
)

func newAnalyzeCommand() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "analyze",
		Short: "Run the analyzer: keep the records of many hosts, and answer for all of them",
		Long: `Analyze takes the intervals of agents that have an exporter analyzer, over TLS with
client certificates, keeps them on disk by host, and serves the same API and console
as an agent, with the records of all hosts: waymark flows --by host,service, waymark
status and waymark console work with its socket.

Each interval is kept exactly once, whichever side is killed at any time. While the
analyzer is not reachable, agents keep intervals on their own disk.

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
	flags.register(cmd)
	cmd.AddCommand(newAnalyzeTokenCommand(), newAnalyzeInitCommand())
	return cmd
}

func analyzerConfig(cmd *cobra.Command, flags *configFlags) (config.Config, error) {
	cfg, origins, err := flags.loadWithOrigins(cmd.ErrOrStderr())
	if err != nil {
		return cfg, err
	}
	return cfg, analyze.Adapt(&cfg, origins)
}

func runAnalyzer(cmd *cobra.Command, cfg config.Config) error {
	var level slog.LevelVar
	level.Set(logLevel(cfg.Log))
	log := newLogger(cfg.Log, &level, cmd.ErrOrStderr())
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	a, err := analyze.New(cfg, analyze.Deps{Log: log, Clock: time.Now, Ready: func() { notify(log, "READY=1") }})
	if err != nil {
		return fmt.Errorf("analyze: %w", err)
	}
	defer context.AfterFunc(ctx, func() { notify(log, "STOPPING=1") })()
	if err := a.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("analyze: %w", err)
	}
	return nil
}

func newAnalyzeTokenCommand() *cobra.Command {
	var flags configFlags
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
			own := analyze.Section.Of(&cfg)
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
	flags.register(cmd)
	durationVar(cmd.Flags(), &valid, "valid", time.Hour, "the token may be used for `TIME`, such as 15m")
	return cmd
}

func newAnalyzeInitCommand() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:     "init",
		Short:   "Make the CA of the analyzer, unless there is one, and print its fingerprint",
		Example: `  waymark analyze init --config /etc/waymark/analyze.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := analyzerConfig(cmd, &flags)
			if err != nil {
				return err
			}
			authority, err := analyze.OpenAuthority(analyze.Section.Of(&cfg).Path, time.Now())
			if err != nil {
				return fmt.Errorf("analyze init: %w", err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%x\n", authority.Fingerprint())
			return err
		},
	}
	flags.register(cmd)
	return cmd
}

func newJoinCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "join URL TOKEN",
		Short: "Have this host join an analyzer: make a key, and get a certificate for it",
		Long: `Join makes a key, sends a request for a certificate to the analyzer, and writes key,
certificate and CA to files. The key does not leave the host. The token, of waymark
analyze token, also says which CA the analyzer must have: nobody else gets the token.

It prints the lines for the configuration of the agent.`,
		Example: `  waymark join https://analyzer.example:8476 wmjoin-…`,
		Args:    cobra.ExactArgs(2), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := analyze.Join(cmd.Context(), args[0], args[1], dir)
			if err != nil {
				return fmt.Errorf("join: %w", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "waymark: this host is %s at the analyzer; the agent needs to read %s. Add to its configuration:\n", f.Name, f.Key)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "export:\n  - analyzer: {url: %q, ca: %q, cert: %q, key: %q}\n", args[0], f.CA, f.Cert, f.Key)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "/etc/waymark", "write the files to directory `DIR`")
	_ = cmd.MarkFlagDirname("dir")
	return cmd
}
