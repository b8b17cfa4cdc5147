package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/lab/demo"
)

func newLabDemoCommand() *cobra.Command {
	prefix, keep := "", false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Demonstrate Waymark in a lab, and verify its results",
		Long: `Demo creates a lab, runs agents on its hosts, sends traffic between them, queries the
agents, and compares their answers with the ground truth. It takes less than a minute
and removes everything that it created.

With --keep, it then leaves a lab running with the console of one agent, which has an
hour of generated history: the last line is the link to it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := inDemo(cmd, prefix, demo.Run)
			if err == nil && keep {
				err = leaveConsole(cmd, prefix)
			}
			if err != nil {
				return fmt.Errorf("lab demo: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", demoPrefix, "prefix of the names of the network namespaces")
	cmd.Flags().BoolVar(&keep, "keep", false, "leave a lab and the console of an agent in it running")
	return cmd
}

const demoPrefix = "wm-demo-"

// inDemo runs a demonstration. Interrupted, or left by who reads its output, it still takes everything down.
func inDemo(cmd *cobra.Command, prefix string, run func(context.Context, demo.Config) error) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	return run(ctx, demo.Config{Binary: binary, Prefix: prefix, Out: cmd.OutOrStdout(), Log: cmd.ErrOrStderr()})
}

// newLabExploreCommand is what leaveConsole leaves.
func newLabExploreCommand() *cobra.Command {
	prefix, port := "", uint16(0)
	cmd := &cobra.Command{
		Use:   "explore",
		Short: "Open the console of an agent with an hour of generated history",
		Long: `Explore creates a lab with traffic and an agent that has an hour of history: of a web
server with a database, a cache and a backup, and of what goes wrong there. It prints the
link to the agent's console, which works once, and serves it until Ctrl-C; then it removes
everything that it created. Waymark lab down ends it, too.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := inDemo(cmd, prefix, func(ctx context.Context, cfg demo.Config) error { return demo.Explore(ctx, cfg, port) })
			if err != nil {
				return fmt.Errorf("lab explore: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", demoPrefix, "prefix of the names of the network namespaces")
	cmd.Flags().Uint16Var(&port, "port", 0, "serve the console on `PORT` of loopback; 0: any that is free")
	return cmd
}

// leaveConsole starts lab explore as a process of its own, and waits for its link.
func leaveConsole(cmd *cobra.Command, prefix string) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	kept := exec.Command(binary, "lab", "explore", "--prefix", prefix)
	kept.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no Ctrl-C and no end of this terminal ends it
	// A file takes what it reports: a pipe would end with this process, and the console with it.
	said, err := os.CreateTemp("", "waymark-demo-*.log")
	if err != nil {
		return err
	}
	defer said.Close()
	defer os.Remove(said.Name())
	kept.Stderr = said
	out, err := kept.StdoutPipe()
	if err != nil {
		return err
	}
	if err := kept.Start(); err != nil {
		return fmt.Errorf("start the console: %w", err)
	}
	link, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		reason, _ := os.ReadFile(said.Name())
		return fmt.Errorf("the console ended: %w: %s", errors.Join(err, kept.Wait()), bytes.TrimSpace(reason))
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "\nThe console of an agent runs, with an hour of generated history. To end it: sudo waymark lab down --prefix %s\n"+
		"Open this link on this machine; it works once:\n%s", prefix, link)
	return err
}
