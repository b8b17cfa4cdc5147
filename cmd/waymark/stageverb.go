package main

import (
	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/stage"
)

// newStageCommand is the command of a stage's verb.
func newStageCommand(v stage.Verb) *cobra.Command {
	var agent agentFlag
	var out outputFlag
	cmd := &cobra.Command{
		Use: v.Name, Short: v.Short, Long: v.Long,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return v.Run(cmd.Context(), agent.client(), cmd.OutOrStdout(), out.format)
		},
	}
	agent.register(cmd)
	out.register(cmd, v.Formats...)
	return cmd
}
