package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/access"
	"github.com/waymark-net/waymark/internal/command"
)

// consoleCommand is waymark console.
type consoleCommand struct {
	agent  agentFlag
	port   uint16
	noOpen bool
}

func newConsoleCommand() *cobra.Command {
	c := &consoleCommand{}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Open the web console of the running agent in a browser",
		Long: `Console serves the agent's web console to this user's browser until it is stopped with Ctrl-C.
It listens on a port of 127.0.0.1 and asks the agent over its unix socket, so whoever may
use the socket may use the console. The link that it prints works once; the browser then
has a session that ends with the command. Connections of other local users are refused,
and nothing can be changed.

Where the agent runs on another host, forward the port: console prints how. For a team,
see the section console of the configuration.`,
		Example: `  waymark console
  waymark console --no-open --port 8474`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	cmd.Flags().Uint16Var(&c.port, "port", 0, "listen on `PORT`; 0: any that is free")
	cmd.Flags().BoolVar(&c.noOpen, "no-open", false, "print the link, and open no browser")
	c.agent.register(cmd)
	cmd.AddCommand(newConsoleTokenCommand())
	return cmd
}

func (c *consoleCommand) run(cmd *cobra.Command) error {
	// Whoever may not use the socket learns it here, with the remedy.
	if _, err := c.agent.client().Status(cmd.Context()); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	l, err := access.NewLocal(c.agent.path(), c.port, access.Users(), log)
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), l.URL()); err != nil {
		return err
	}
	if _, remote := sshConnection(os.Getenv(sshVariable)); remote {
		name, _ := os.Hostname()
		fmt.Fprintf(cmd.ErrOrStderr(), "On your own host, first: ssh -L %[1]s:%[1]s %[2]s\n", l.Addr(), name)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "The link works once. Ctrl-C ends the console.")
	if !c.noOpen {
		done := showInBrowser(ctx, l.URL(), log)
		defer done()
	}
	if err := l.Run(ctx); err != nil {
		return fmt.Errorf("console: %w", err)
	}
	return nil
}

// showInBrowser opens a link in the browser of the desktop, if there is one. All users can read the arguments of a process,
// so the link is in a file of this user.
func showInBrowser(ctx context.Context, url string, log *slog.Logger) (done func()) {
	desktop := os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != ""
	opener, err := exec.LookPath("xdg-open")
	if err != nil || !desktop || os.Getuid() == 0 {
		return func() {}
	}
	dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "waymark-console-") // for this user alone
	if err != nil {
		log.Warn("no browser is opened", "error", err)
		return func() {}
	}
	file := filepath.Join(dir, "console.html")
	page := `<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=` + url + `"><title>Waymark</title>`
	go func() {
		err := os.WriteFile(file, []byte(page), 0o600)
		if err == nil {
			err = exec.CommandContext(ctx, opener, file).Run()
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("the browser could not be opened: open the link yourself", "error", err)
		}
	}()
	return func() { _ = os.RemoveAll(dir) }
}

func newConsoleTokenCommand() *cobra.Command {
	var role string
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a bearer token for the console, and its line for the configuration",
		Long: `Token makes a random bearer token. The configuration has its hash only: add the line that is
printed to console.tokens, then reload the agent. The token itself is shown this once; give it
to its bearer, who sends it as "Authorization: Bearer TOKEN", or logs in with it.`,
		Example: `  waymark console token alice
  waymark console token grafana --role read-anonymised`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return printToken(cmd, args[0], role, out.format)
		},
	}
	cmd.Flags().StringVar(&role, "role", "read", "what its bearer may do: `ROLE` is "+strings.Join(access.TokenRoles(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(access.TokenRoles(), cobra.ShellCompDirectiveNoFileComp))
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	out.register(cmd, outputTable, outputJSON)
	return cmd
}

func printToken(cmd *cobra.Command, name, role, format string) error {
	if name == "" || strings.ContainsAny(name, ":\"\\\n") {
		return command.UsageErrorf("console token: name %q: write one without colons and quotes", name)
	}
	if !slices.Contains(access.TokenRoles(), role) {
		return command.UsageErrorf("console token: role %q: write one of %s", role, strings.Join(access.TokenRoles(), ", "))
	}
	token, hashed := access.NewToken()
	if format == outputJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{"name": name, "role": role, "token": token, "hash": hashed})
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "token of %s:\n  %s\nline for console.tokens:\n  - \"%s:%s:%s\"\n", name, token, name, role, hashed)
	return err
}
