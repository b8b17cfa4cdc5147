package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/internal/topology/joined"
	"github.com/waymark-net/waymark/internal/topology/timeline"
)

// outputDot is a graph for Graphviz.
const outputDot = "dot"

// topologyCommand is waymark topology.
type topologyCommand struct {
	agent  agentFlag
	out    outputFlag
	at     string
	follow bool
}

func newTopologyCommand() *cobra.Command {
	c := &topologyCommand{}
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Show what is connected with what: interfaces, namespaces, neighbours; now or at 14:02",
		Long: `Topology shows the interfaces of this host and of the watched network namespaces as they are
connected: ends of veth pairs, ports of bridges and bonds, VLANs and tunnels on what they
lie on. Neighbours are shown on their link: what the kernel knows by ARP, NDP and from
bridges, ends of tunnels, and who announces itself (LLDP). Nodes of IOAM traces follow.

The agent keeps each state until another one follows, and with history on disk also over
a restart. Counters make no new state; the JSON of the present shows use, drops and loss of
each interface besides. Each node has a place (tier, order) that follows from its name
alone, so that a picture of the same state is always the same.

An analyzer joins the topologies of all hosts, as they are now: it shows the links between
hosts, how each was found, and what several hosts claim.`,
		Example: `  waymark topology
  waymark topology --at 14:02
  waymark topology --follow
  waymark topology -o dot | dot -Tsvg > topology.svg
  waymark topology --socket /run/waymark-analyze/analyze.sock`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	c.out.register(cmd, outputTable, outputJSON, outputJSONL, outputDot)
	cmd.Flags().StringVar(&c.at, "at", "", "show the state at `TIME`: 90s, 5m, 1d, 09:50, or a date and time")
	cmd.Flags().BoolVar(&c.follow, "follow", false, "show changes as they come, until stopped")
	c.agent.register(cmd)
	return cmd
}

func (c *topologyCommand) run(cmd *cobra.Command) error {
	switch {
	case c.follow && c.at != "":
		return command.UsageErrorf("topology: --follow and --at exclude each other: changes are those from now on")
	case c.follow && c.out.format != outputTable && c.out.format != outputJSONL:
		return command.UsageErrorf("topology: --follow writes a table, or -o jsonl")
	case !c.follow && c.out.format == outputJSONL:
		return command.UsageErrorf("topology: -o jsonl is for --follow; write -o json")
	}
	if c.follow {
		return c.agent.client().Stream(cmd.Context(), api.TopologyChangesPath, func(event json.RawMessage) error {
			return c.printChange(cmd.OutOrStdout(), event)
		})
	}
	if err := absoluteTime("topology", "at", time.Now(), &c.at); err != nil {
		return err
	}
	var answer json.RawMessage
	if err := c.agent.client().Topology(cmd.Context(), c.at, &answer); err != nil {
		return err
	}
	return c.print(cmd.OutOrStdout(), answer)
}

func (c *topologyCommand) print(w io.Writer, answer json.RawMessage) error {
	if c.out.format == outputJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(answer)
	}
	var g struct {
		timeline.Graph
		joined.Topology
	}
	if err := json.Unmarshal(answer, &g); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	switch {
	case c.out.format == outputDot:
		return timeline.WriteDot(w, &g.Graph)
	case g.Hosts != nil: // of an analyzer
		return g.Topology.Write(w)
	}
	if _, err := fmt.Fprintf(w, "since %s\n", g.Since.Local().Format(time.DateTime)); err != nil {
		return err
	}
	return timeline.WriteTree(w, &g.Graph)
}

// printChange writes a line for each node.
func (c *topologyCommand) printChange(w io.Writer, event json.RawMessage) error {
	if c.out.format == outputJSONL {
		_, err := fmt.Fprintf(w, "%s\n", event)
		return err
	}
	var change timeline.Change
	if err := json.Unmarshal(event, &change); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	var b strings.Builder
	for _, part := range []struct {
		what string
		ids  []string
	}{{"added", change.Added}, {"removed", change.Removed}, {"changed", change.Changed}} {
		for _, id := range part.ids {
			fmt.Fprintf(&b, "%s  %-7s  %s\n", change.Time.Local().Format(time.TimeOnly), part.what, term.Printable(id))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// topologyText says how far back waymark topology reaches.
func topologyText(s *obs.Status) string {
	t := s.Topology
	if t == nil || t.Versions == 0 {
		return "not read yet"
	}
	text := fmt.Sprintf("%s of the topology since %s, the last of %s", term.Number(uint64(t.Versions), "versions"), t.Oldest.Local().Format(time.DateTime), t.Newest.Local().Format(time.DateTime))
	if t.LLDP != "received" {
		text += "; no LLDP: " + t.LLDP
	}
	if t.Error != "" {
		text += "; failing: " + t.Error
	}
	return text
}
