package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/lab/demo"
)

func newLabDemoCommand() *cobra.Command {
	prefix := ""
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show Waymark at work on a network made for it",
		Long: `demo brings a lab up, runs agents in it as on real hosts, makes real traffic, asks
the agents, and holds their answers against the truth. It takes less than a minute
and leaves nothing behind.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			binary, err := os.Executable()
			if err != nil {
				return fmt.Errorf("lab demo: finding this program: %w", err)
			}
			// Interrupted, or left by who reads its output, it still takes everything down.
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
			defer stop()
			err = demo.Run(ctx, demo.Config{
				Binary: binary, Prefix: prefix, Out: cmd.OutOrStdout(), Log: cmd.ErrOrStderr(),
			})
			if err != nil {
				return fmt.Errorf("lab demo: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "wm-demo-", "prefix of the names of the lab's network namespaces")
	return cmd
}
