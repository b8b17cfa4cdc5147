package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/internal/top"
)

func newTopCommand() *cobra.Command {
	var agent agentFlag
	cfg := top.Default()
	cmd := &cobra.Command{
		Use:   "top [FILTER]",
		Short: "Show the busiest conversations, flows and hosts live",
		Long: `Top shows current rates in both directions, round-trip times and recent history, by
conversation, flow, pair of hosts, service or interface; for flows with PDM marks, also
server and network delay. While top runs, the agent uses a short scan interval. Press ?
for the keys.`,
		Example: `  waymark top
  waymark top tcp and port 443
  waymark top --view services --every 1s`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if cfg.Filter, err = filterOf(cmd, cfg.Filter, args); err != nil {
				return err
			}
			cfg.ASCII = !utf8Locale(os.Getenv)
			t, err := top.New(cfg, top.Deps{Client: agent.client(), In: cmd.InOrStdin(), Out: cmd.OutOrStdout()})
			if err != nil {
				return command.UsageErrorf("top: %w", err)
			}
			if !term.IsTerminal(cmd.OutOrStdout()) {
				return command.UsageErrorf("top: stdout is not a terminal; for text use: waymark flows --follow")
			}
			return t.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&cfg.Filter, "filter", "f", "", "show only flows that match the filter `EXPR`; --filter may be omitted")
	cmd.Flags().StringVar(&cfg.View, "view", cfg.View, "start with `VIEW`: "+strings.Join(top.ViewNames(), ", "))
	command.DurationVar(cmd.Flags(), &cfg.Every, "every", cfg.Every, "request scan intervals of at most `TIME`, 1s or longer")
	cmd.ValidArgsFunction = completeFilter
	_ = cmd.RegisterFlagCompletionFunc("view", cobra.FixedCompletions(top.ViewNames(), cobra.ShellCompDirectiveNoFileComp))
	agent.register(cmd)
	return cmd
}

// utf8Locale reports whether the terminal is set to show UTF-8 (locale(7)): the
// first variable that is set decides.
func utf8Locale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}
