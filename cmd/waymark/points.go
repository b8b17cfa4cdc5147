package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/internal/view"
)

// pointsCommand is waymark points.
type pointsCommand struct {
	agent   agentFlag
	out     outputFlag
	request api.WhyRequest
	limit   int
}

func newPointsCommand() *cobra.Command {
	c := &pointsCommand{}
	cmd := &cobra.Command{
		Use:   "points [FILTER]",
		Short: "Show the links and hosts that flows pass, and what each lost: of an analyzer",
		Long: `Points shows flows with the points where their packets were counted, in the order in which
packets pass these: on a link, from where they leave a host to where they come in at the
next one, and in a host, from where they come in to where they leave it. Each line has the
packets at both ends and what is missing. Packets need no mark.

Lost is followed by what it may be off (±): packets that passed while one host counted and
the other one did not. Packets that rules dropped are among those that a host lost. Notes
name routers without an agent, reasons why the order may be another one, and hosts behind
which a flow cannot be followed.

An analyzer answers: an agent has the records of one host. IOAM traces, which packets
carry, are shown by waymark paths.`,
		Example: `  waymark points --socket /run/waymark-analyze/analyze.sock host 192.0.2.7 and udp
  waymark points --since 14:00 --until 14:10 'src 2001:db8::1 and dst port 443'
  waymark points -o jsonl tcp dst port 443 | jq '.parts[] | select(.lost > .margin)'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, args) },
	}
	c.out.register(cmd, outputTable, outputJSON, outputJSONL)
	flags := cmd.Flags()
	flags.StringVarP(&c.request.Filter, "filter", "f", "", "show only flows that match the filter `EXPR`; --filter may be omitted")
	flags.StringVar(&c.request.Since, "since", "10m", "of what was counted since `TIME`: 90s, 5m, 1d, 09:50, or a date and time")
	flags.StringVar(&c.request.Until, "until", "", "and until `TIME`, written likewise; now when omitted")
	flags.IntVarP(&c.limit, "limit", "n", 10, "show `N` flows, those with most packets; 0 is all that the analyzer compares")
	c.agent.register(cmd)
	cmd.ValidArgsFunction = completeFilter
	return cmd
}

func (c *pointsCommand) run(cmd *cobra.Command, args []string) (err error) {
	if c.request.Filter, err = filterOf(cmd, c.request.Filter, args); err != nil {
		return err
	}
	if c.limit < 0 {
		return command.UsageErrorf("points: --limit %d: write how many flows to show, or 0 for all", c.limit)
	}
	now := time.Now()
	if err := absoluteTimes("points", now, &c.request.Since, &c.request.Until); err != nil {
		return err
	}
	if _, _, err := c.request.Range(now); err != nil {
		return command.UsageErrorf("points: %w", err)
	}
	var a hops.Ways
	if err := c.agent.client().Points(cmd.Context(), c.request, &a); err != nil {
		return err
	}
	if c.limit > 0 && len(a.Flows) > c.limit {
		a.Others += len(a.Flows) - c.limit
		a.Flows = a.Flows[:c.limit]
	}
	return c.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), &a)
}

func (c *pointsCommand) print(stdout, stderr io.Writer, a *hops.Ways) error {
	for _, text := range a.Incomplete {
		if _, err := fmt.Fprintf(stderr, "waymark: records of %s: do not compare its counts\n", term.Printable(text)); err != nil {
			return err
		}
	}
	enc := json.NewEncoder(stdout)
	switch c.out.format {
	case outputJSON:
		enc.SetIndent("", "  ")
		return enc.Encode(a)
	case outputJSONL:
		for i := range a.Flows {
			if err := enc.Encode(&a.Flows[i]); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range a.Flows {
		if err := printWay(stdout, i > 0, &a.Flows[i]); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(stderr, summaryOfWays(a))
	return err
}

func summaryOfWays(a *hops.Ways) string {
	if len(a.Flows) == 0 {
		return "no flow matches in that time: choose another --since or filter"
	}
	losing := 0
	for i := range a.Flows {
		for k := range a.Flows[i].Parts {
			if a.Flows[i].Parts[k].Significant() {
				losing++
				break
			}
		}
	}
	s := fmt.Sprintf("%s, %d of them with loss", term.Number(uint64(len(a.Flows)), "flows"), losing)
	if a.Others > 0 {
		s += fmt.Sprintf("; %s not shown: filter, or --limit 0", term.Number(uint64(a.Others), "more flows"))
	}
	return s
}

// printWay writes a flow, its parts, and what is to be said of them.
func printWay(w io.Writer, again bool, way *hops.Way) error {
	text := ""
	if again {
		text = "\n"
	}
	text += nameOfWay(way) + "\n"
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	if len(way.Parts) > 0 {
		t := &term.Table{Columns: []term.Column{
			{Title: "PART"},
			{Title: "FROM", Least: 12},
			{Title: "TO", Least: 12},
			{Title: "SENT", Right: true},
			{Title: "RECEIVED", Right: true},
			{Title: "LOST", Right: true},
			{Title: "NOTE", Least: 4},
		}}
		for i := range way.Parts {
			p := &way.Parts[i]
			t.Add(string(p.Kind), pointNames(p.From), pointNames(p.To), fmt.Sprint(p.Sent), fmt.Sprint(p.Received), lossOf(p), noteOf(p))
		}
		if err := t.Write(w, term.Width(w)); err != nil {
			return err
		}
	}
	text = ""
	for _, reason := range way.Unconfirmed {
		text += "  order not certain: " + term.Printable(reason) + "\n"
	}
	for _, note := range way.Notes {
		text += "  " + term.Printable(note) + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// nameOfWay is a flow as waymark flows shows it.
func nameOfWay(way *hops.Way) string {
	r := api.Row{Row: query.Row{
		Record:    flow.Record{Proto: way.Proto, SrcPort: way.Sport, DstPort: way.Dport},
		SrcPrefix: netip.PrefixFrom(way.Src, way.Src.BitLen()), DstPrefix: netip.PrefixFrom(way.Dst, way.Dst.BitLen()),
	}}
	return fmt.Sprintf("%s %s > %s", flow.ProtoName(way.Proto), view.Source(&r), view.Destination(&r))
}

// pointNames are a side of a part; several points are parallel.
func pointNames(points []hops.Point) string {
	names := make([]string, len(points))
	for i := range points {
		names[i] = points[i].String()
	}
	return strings.Join(names, ", ")
}

func lossOf(p *hops.Part) string {
	if p.Margin == 0 {
		return fmt.Sprint(p.Lost)
	}
	return fmt.Sprintf("%d ±%d", p.Lost, p.Margin)
}

func noteOf(p *hops.Part) string {
	var notes []string
	if p.Dropped > 0 {
		notes = append(notes, fmt.Sprintf("%d dropped by rules", p.Dropped))
	}
	if p.Gained > 0 {
		notes = append(notes, fmt.Sprintf("%d more received than sent", p.Gained))
	}
	if p.Hidden > 0 {
		notes = append(notes, term.Number(uint64(p.Hidden), "routers")+" without an agent")
	}
	return strings.Join(notes, "; ")
}
