package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/term"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration, or print the effective one",
	}
	cmd.AddCommand(newConfigCheckCommand(), newConfigDumpCommand())
	return cmd
}

func newConfigCheckCommand() *cobra.Command {
	limit := ""
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file and name every problem in it",
		Long: `Check reads a configuration file as waymark run does, without variables and flags.
Problems are named with file, line and column, and with what is allowed instead;
the exit code is 2 then. Where an agent answers on the socket of that configuration,
else on the one that waymark status asks, check also names what differs from what the agent
runs: what a reload applies, and what needs a restart. --memory shows how the agent divides a memory limit.`,
		Example: `  waymark config check /etc/waymark/waymark.yaml
  waymark config check --memory 256M /etc/waymark/waymark.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := config.Load(config.Sources{File: args[0]})
			if err != nil {
				return err
			}
			var sizes *term.Table
			if limit != "" {
				if sizes, err = sizesTable(cfg, limit); err != nil {
					return err
				}
			}
			stdout := cmd.OutOrStdout()
			if _, err := fmt.Fprintf(stdout, "%s: no problems\n", args[0]); err != nil {
				return err
			}
			if sizes != nil {
				return sizes.Write(stdout, term.Width(stdout))
			}
			return compareWithAgent(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&limit, "memory", "", "show the sizes of all components under this memory limit, such as 256M")
	return cmd
}

func newConfigDumpCommand() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Print the effective configuration, and where each value was set",
		Long: `Dump prints the effective configuration as YAML that waymark run reads back: defaults,
then the file, then WAYMARK_… variables, then flags. A comment says where a value
that is not a default was set.`,
		Example: `  waymark config dump > waymark.yaml
  WAYMARK_FLOW_SAMPLING=10 waymark config dump --config /etc/waymark/waymark.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, origins, err := flags.loadWithOrigins(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return config.Dump(cmd.OutOrStdout(), cfg, origins)
		},
	}
	flags.register(cmd)
	return cmd
}
