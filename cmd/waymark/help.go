package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/term"
)

// topicFilter is a topic of help that is no command.
const topicFilter = "filter"

// newHelpCommand is waymark help COMMAND.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Describe a command, or with filter the language of filters",
		Args:  cobra.ArbitraryArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			at, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			names := command.Verbs(at)
			if len(args) == 0 {
				names = append(names, topicFilter)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Equal(args, []string{topicFilter}) {
				return printFilterHelp(cmd.OutOrStdout())
			}
			at, rest, err := cmd.Root().Find(args)
			if at.DisableFlagParsing { // another program's
				return at.RunE(at, append(rest, "--help"))
			}
			if len(rest) > 0 {
				return command.UsageErrorf("help: %w", command.UnknownCommand(at, rest))
			}
			if err != nil {
				return command.UsageErrorf("help: %w", err)
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}

// printFilterHelp is waymark-filter(7) for a terminal.
func printFilterHelp(w io.Writer) error {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(filterLead, "`", "") + "\n\n")
	examples := &term.Table{Columns: []term.Column{{Title: "FILTER"}, {Title: "MEANING"}}}
	for _, e := range filterGuide {
		examples.Add(e.text, e.means)
	}
	fields := &term.Table{Columns: []term.Column{{Title: "FIELD"}, {Title: "MEANING"}, {Title: "EXAMPLES"}}}
	for _, f := range filter.Fields() {
		fields.Add(f.Name, f.Doc, f.Example)
	}
	if err := examples.Write(&b, 0); err != nil {
		return err
	}
	b.WriteString("\n")
	if err := fields.Write(&b, 0); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\nTests without a value: %s.\n\n%s\n\n%s\n",
		strings.Join(filter.Shorthands(), ", "), strings.ReplaceAll(filterSums, "`", ""), strings.ReplaceAll(filterNames, "`", ""))
	_, err := io.WriteString(w, b.String())
	return err
}
