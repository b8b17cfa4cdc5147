package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/export/kafka"
	"github.com/waymark-net/waymark/internal/term"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration, print the effective one, or the schema of a database",
	}
	cmd.AddCommand(newConfigCheckCommand(), newConfigDumpCommand(), newConfigClickHouseCommand())
	return cmd
}

func newConfigCheckCommand() *cobra.Command {
	limit := ""
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file and report every problem in it",
		Long: `Check reads a configuration file as waymark run does, without variables and flags.
It reports every problem with file, line and column, and what is allowed instead; the
exit code is then 2.

If an agent is running, check also reports how the file differs from the agent's
configuration: which changes a reload applies, and which need a restart. It looks for
the agent on the socket that the file names, then on the one that waymark status uses.
--memory shows how the agent would divide a memory limit among its components.`,
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
			warnOfPrograms(cmd.ErrOrStderr(), cfg)
			if sizes != nil {
				return sizes.Write(stdout, term.Width(stdout))
			}
			return compareWithAgent(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&limit, "memory", "", "show the size of each component under this memory limit, such as 256M")
	return cmd
}

// warnOfPrograms reports programs that an agent here would not find. The file may be for another host.
func warnOfPrograms(to io.Writer, cfg config.Config) {
	for i, e := range cfg.Export {
		if e.Kafka == nil {
			continue
		}
		if _, err := kafka.FindProgram(e.Kafka.Program); err != nil {
			fmt.Fprintf(to, "waymark: export[%d]: on this host, records would wait: %v\n", i, err)
		}
	}
}

func newConfigDumpCommand() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Print the effective configuration, and where each value was set",
		Long: `Dump prints the effective configuration as YAML that waymark run can read: defaults,
overridden by the file, by WAYMARK_… variables and by flags, in this order. A comment
after each value that is not a default names its source.`,
		Example: `  waymark config dump > waymark.yaml
  WAYMARK_FLOW_SAMPLING=10 waymark config dump --config /etc/waymark/waymark.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, origins, err := flags.Load(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return config.Dump(cmd.OutOrStdout(), cfg, origins)
		},
	}
	flags.register(cmd)
	return cmd
}
