package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/term"
)

// rulesChange is a command that changes the rules of the running agent.
type rulesChange struct {
	agent agentFlag
	out   outputFlag
	force bool
}

func (c *rulesChange) register(cmd *cobra.Command) {
	c.agent.register(cmd)
	c.out.register(cmd, outputTable, outputJSON)
	cmd.Flags().BoolVar(&c.force, "force", false, "also where a rule would drop your own connection")
}

// send makes the change, and reports what it did.
func (c *rulesChange) send(cmd *cobra.Command, change gate.Change) error {
	change.Force, change.Connections = c.force, operatorConnections()
	var done gate.Changed
	if err := c.agent.client().Set(cmd.Context(), gate.RulesPath, change, &done); err != nil {
		return err
	}
	if c.out.format == outputJSON {
		return writeRulesJSON(cmd.OutOrStdout(), done)
	}
	for _, w := range done.Warnings {
		if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "waymark: %s\n", w); err != nil {
			return err
		}
	}
	for sign, list := range map[string][]gate.Rule{"-": done.Removed, "+": done.Added} {
		for _, r := range list {
			if len(list) > 20 {
				break // a whole file: the sum says enough
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %d  %s\n", sign, r.ID, r.Text); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s in effect; %d added, %d removed\n", term.Number(uint64(done.Rules), "rules"), len(done.Added), len(done.Removed))
	return err
}

func newRulesApplyCommand() *cobra.Command {
	c := &rulesChange{}
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Replace the rules of the running agent by those of a file",
		Long: `Apply replaces the rules of the running agent by those of a file, as a whole: each packet
meets the old rules or the new ones. Rules that are in both go on with their counters and
limits. A file with an error changes nothing. FILE - is stdin.

A rule that would drop the connection over which you are logged in (SSH) is refused;
--force applies it nevertheless. When the agent starts or reloads its configuration, it
reads the file of gate.rules.`,
		Example: `  waymark rules apply /etc/waymark/rules
  waymark rules apply --force -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rs, _, err := readRules(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			for _, set := range rs.Sets {
				set.File = "" // the agent gets the members
			}
			text := rs.String()
			return c.send(cmd, gate.Change{File: args[0], Apply: &text})
		},
	}
	c.register(cmd)
	return cmd
}

func newRulesAddCommand() *cobra.Command {
	c := &rulesChange{}
	var before uint32
	var first bool
	cmd := &cobra.Command{
		Use:   "add RULE",
		Short: "Add a rule to those of the running agent",
		Long: `Add puts a rule behind those of the running agent, in front of them (--first), or in front
of one (--before ID). The rule may name sets of the rules that are in effect. It stays until
the agent ends or reads its rule file again.

A rule that would drop the connection over which you are logged in (SSH) is refused;
--force adds it nevertheless.`,
		Example: `  waymark rules add drop src 203.0.113.0/24 for 1h
  waymark rules add --first pass src 192.0.2.7`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := strings.Join(args, " ")
			if first && before != 0 {
				return command.UsageErrorf("rules add: --first and --before exclude each other: leave one out")
			}
			return c.send(cmd, gate.Change{Add: text + "\n", Before: before, First: first})
		},
	}
	cmd.Flags().Uint32Var(&before, "before", 0, "`id` of the rule to put it in front of")
	cmd.Flags().BoolVar(&first, "first", false, "put it in front of all rules")
	c.register(cmd)
	return cmd
}

func newRulesDelCommand() *cobra.Command {
	c := &rulesChange{}
	cmd := &cobra.Command{
		Use:     "del ID...",
		Short:   "Remove rules of the running agent",
		Long:    `Del removes rules of the running agent by their ids, which waymark rules list shows.`,
		Example: `  waymark rules del 2166136261`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var change gate.Change
			for _, arg := range args {
				id, err := strconv.ParseUint(arg, 10, 32)
				if err != nil {
					return command.UsageErrorf("rules del: %q is no id: waymark rules list shows the ids", arg)
				}
				change.Delete = append(change.Delete, uint32(id))
			}
			return c.send(cmd, change)
		},
	}
	c.register(cmd)
	return cmd
}

func newRulesListCommand() *cobra.Command {
	var agent agentFlag
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the rules of the running agent with their counters and rates",
		Long: `List shows the rules that are in effect, in the order in which packets meet them, with the
packets and bytes that matched, those of them that were dropped, and the rates between the
last two scans. Counters go on as long as a rule stays, whatever else is replaced. -o rules
prints the rules in effect as a rule file, with the members of sets.`,
		Example: `  waymark rules list
  waymark rules list -o json | jq '.rules[] | select(.dropped > 0)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out.format == outputRules {
				var file gate.RulesText
				if err := agent.client().Page(cmd.Context(), gate.RulesTextPath, &file); err != nil {
					return err
				}
				_, err := io.WriteString(cmd.OutOrStdout(), file.Text)
				return err
			}
			var answer gate.Rules
			if err := agent.client().Page(cmd.Context(), gate.RulesPath, &answer); err != nil {
				return err
			}
			switch out.format {
			case outputJSON:
				return writeRulesJSON(cmd.OutOrStdout(), answer)
			case outputJSONL:
				enc := json.NewEncoder(cmd.OutOrStdout())
				for _, r := range answer.Rules {
					if err := enc.Encode(r); err != nil {
						return err
					}
				}
				return nil
			}
			return writeRulesTable(cmd.OutOrStdout(), &answer)
		},
	}
	agent.register(cmd)
	out.register(cmd, outputTable, outputJSON, outputJSONL, outputRules)
	return cmd
}

func writeRulesTable(w io.Writer, list *gate.Rules) error {
	t := &term.Table{Columns: []term.Column{
		{Title: "ID", Right: true},
		{Title: "RULE", Least: 20},
		{Title: "PACKETS", Right: true},
		{Title: "BYTES", Right: true},
		{Title: "DROPPED", Right: true},
		{Title: "PACKETS/s", Right: true},
	}}
	for _, r := range list.Rules {
		t.Add(fmt.Sprint(r.ID), r.Text, term.Count(r.Packets), term.Count(r.Bytes), term.Count(r.Dropped), term.SI(r.PacketRate))
	}
	t.Add("", "(no rule decided)", term.Count(list.Passed.Packets), term.Count(list.Passed.Bytes), "0", "")
	return t.Write(w, term.Width(w))
}
