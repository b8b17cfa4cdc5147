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
		Short: "Demonstrate Waymark in a lab, and verify its results",
		Long: `Demo creates a lab, runs agents on its hosts, sends traffic between them, queries the
agents, and compares their answers with the ground truth. It takes less than a minute
and removes everything that it created.`,
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
	cmd.Flags().StringVar(&prefix, "prefix", "wm-demo-", "prefix of the names of the network namespaces")
	return cmd
}
