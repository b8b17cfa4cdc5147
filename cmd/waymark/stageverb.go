package main

import (
	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/stage"
)

// newStageCommand is the command of a stage's verb.
func newStageCommand(v stage.Verb) *cobra.Command {
	var agent agentFlag
	var out outputFlag
	options := map[string]*bool{}
	cmd := &cobra.Command{
		Use: v.Name, Short: v.Short, Long: v.Long, Example: v.Example,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := stage.Call{Agent: agent.client(), Out: cmd.OutOrStdout(), Format: out.format, Options: map[string]bool{}}
			if len(args) > 0 {
				c.Arg = args[0]
			}
			for name, given := range options {
				c.Options[name] = *given
			}
			return v.Run(cmd.Context(), c)
		},
	}
	if v.Arg != "" {
		cmd.Use += " [" + v.Arg + "]"
		cmd.Args = cobra.MaximumNArgs(1)
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	if v.Explainer != nil {
		cmd.AddCommand(newExplainCommand(v.Name, v.Explainer))
	}
	agent.register(cmd)
	out.register(cmd, v.Formats...)
	for _, o := range v.Options {
		options[o.Name] = cmd.Flags().Bool(o.Name, false, o.Doc)
	}
	return cmd
}
