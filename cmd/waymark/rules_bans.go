package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/term"
)

// banChange is a command that changes the bans of the running agent.
type banChange struct {
	agent agentFlag
	out   outputFlag
}

func (c *banChange) register(cmd *cobra.Command) {
	c.agent.register(cmd)
	c.out.register(cmd, outputTable, outputJSON)
}

// send makes the change, and reports what it did.
func (c *banChange) send(cmd *cobra.Command, change gate.BanChange) error {
	var done gate.BansChanged
	if err := c.agent.client().Set(cmd.Context(), gate.BansPath, change, &done); err != nil {
		return err
	}
	if c.out.format == outputJSON {
		return writeRulesJSON(cmd.OutOrStdout(), done)
	}
	var text strings.Builder
	if b := done.Banned; b != nil {
		fmt.Fprintf(&text, "+ %s  %s\n", b.Prefix, untilText(b.Until))
	}
	for _, p := range done.Unbanned {
		fmt.Fprintf(&text, "- %s\n", p)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s%s in effect\n", &text, term.Number(uint64(done.Bans), "bans"))
	return err
}

func untilText(until *time.Time) string {
	if until == nil {
		return "without end"
	}
	return "until " + until.Local().Format(time.DateTime)
}

func newRulesBanCommand() *cobra.Command {
	c := &banChange{}
	force := false
	cmd := &cobra.Command{
		Use:   "ban ADDRESS|PREFIX [for DURATION] [REASON]",
		Short: "Drop all packets of a source, for a time",
		Long: `Ban has the running agent drop all packets of a source before they meet the rules, until
the time has passed or waymark rules unban ends it. The kernel follows the end by itself.
A second ban of the same source sets another end.

Sources of allow lists, which are rules that pass all packets of a source (pass src …), are
never banned: packets of such sources within a banned prefix meet the rules. A ban that
would drop the connection over which you are logged in (SSH) is refused; --force makes it
nevertheless. Bans stay when rules change. They end with the agent, unless
gate.state keeps them.`,
		Example: `  waymark rules ban 203.0.113.9 for 1h tries passwords
  waymark rules ban 2001:db8:bad::/48`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			change := gate.BanChange{Ban: args[0], Force: force, Connections: operatorConnections()}
			rest := args[1:]
			if len(rest) > 0 && rest[0] == "for" {
				if len(rest) == 1 {
					return command.UsageErrorf("rules ban: missing duration behind for: write it like for 1h")
				}
				change.For, rest = rest[1], rest[2:]
			}
			change.Reason = strings.Join(rest, " ")
			return c.send(cmd, change)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also where it would drop your own connection")
	c.register(cmd)
	return cmd
}

func newRulesUnbanCommand() *cobra.Command {
	c := &banChange{}
	all := false
	cmd := &cobra.Command{
		Use:   "unban ADDRESS|PREFIX...",
		Short: "End bans",
		Long:  `Unban ends bans of the running agent, which waymark rules bans shows, or all of them.`,
		Example: `  waymark rules unban 203.0.113.9
  waymark rules unban --all`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return command.UsageErrorf("rules unban: write addresses or prefixes, or --all")
			}
			return c.send(cmd, gate.BanChange{Unban: args, All: all})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "end all bans")
	c.register(cmd)
	return cmd
}

func newRulesBansCommand() *cobra.Command {
	var agent agentFlag
	var out outputFlag
	follow := false
	cmd := &cobra.Command{
		Use:   "bans",
		Short: "Show bans, or follow how they begin and end",
		Long: `Bans shows the bans of the running agent, with the packets that they dropped. LEVEL is that of
back-off: how often the source was banned shortly before. --follow shows bans as they begin
and end, from now on until interrupted.`,
		Example: `  waymark rules bans
  waymark rules bans --follow -o jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if follow {
				return followBans(cmd, &agent, out.format)
			}
			var list gate.Bans
			if err := agent.client().Page(cmd.Context(), gate.BansPath, &list); err != nil {
				return err
			}
			return writeBans(cmd.OutOrStdout(), &list, out.format)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "show bans as they begin and end")
	agent.register(cmd)
	out.register(cmd, outputTable, outputJSON, outputJSONL)
	return cmd
}

func writeBans(w io.Writer, list *gate.Bans, format string) error {
	switch format {
	case outputJSON:
		return writeRulesJSON(w, list)
	case outputJSONL:
		enc := json.NewEncoder(w)
		for _, b := range list.Bans {
			if err := enc.Encode(b); err != nil {
				return err
			}
		}
		return nil
	}
	t := &term.Table{Columns: []term.Column{
		{Title: "SOURCE", Least: 12}, {Title: "SINCE"}, {Title: "UNTIL"}, {Title: "LEVEL", Right: true}, {Title: "BY"}, {Title: "DROPPED", Right: true}, {Title: "REASON", Least: 10},
	}}
	for _, b := range list.Bans {
		until := "-"
		if b.Until != nil {
			until = b.Until.Local().Format(time.DateTime)
		}
		t.Add(b.Prefix.String(), b.Since.Local().Format(time.DateTime), until, fmt.Sprint(b.Level), b.By, term.Count(b.Dropped), term.Printable(b.Reason))
	}
	return t.Write(w, term.Width(w))
}

// followBans writes events as they come.
func followBans(cmd *cobra.Command, agent *agentFlag, format string) error {
	w := cmd.OutOrStdout()
	return agent.client().Stream(cmd.Context(), gate.EventsPath, func(raw json.RawMessage) error {
		if format != outputTable {
			_, err := fmt.Fprintf(w, "%s\n", raw)
			return err
		}
		var e gate.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		_, err := fmt.Fprintln(w, term.Printable(e.Text()))
		return err
	})
}
