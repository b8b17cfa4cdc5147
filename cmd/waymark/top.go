package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/internal/top"
)

func newTopCommand() *cobra.Command {
	var agent agentFlag
	cfg := top.Default()
	cmd := &cobra.Command{
		Use:   "top [FILTER]",
		Short: "Watch the busiest flows, conversations and hosts live",
		Long: `Top shows in the terminal who talks with whom right now: rates both ways, round trip
and the recent past, as conversations, flows, pairs of hosts, services or interfaces,
and of marked flows where their time goes. While it runs it asks the agent for short
intervals. ? shows the keys.`,
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
				return usageErrorf("top: %w", err)
			}
			if !term.IsTerminal(cmd.OutOrStdout()) {
				return usageErrorf("top: stdout is not a terminal; for text use: waymark flows --follow")
			}
			return t.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&cfg.Filter, "filter", "f", "", "only flows that match the filter `EXPR`; the flag may be left out")
	cmd.Flags().StringVar(&cfg.View, "view", cfg.View, "`VIEW` to begin with: "+strings.Join(top.ViewNames(), ", "))
	durationVar(cmd.Flags(), &cfg.Every, "every", cfg.Every, "ask the agent for intervals as short as this, at least 1s")
	cmd.ValidArgsFunction = completeFilter
	_ = cmd.RegisterFlagCompletionFunc("view", cobra.FixedCompletions(top.ViewNames(), cobra.ShellCompDirectiveNoFileComp))
	agent.register(cmd)
	return cmd
}

// utf8Locale tells whether the terminal is told to show UTF-8 (locale(7)): the
// first variable that is set decides.
func utf8Locale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}
