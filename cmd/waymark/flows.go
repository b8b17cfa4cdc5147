package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/internal/view"
)

// flowsCommand is waymark flows, and with other columns waymark delays.
type flowsCommand struct {
	answers
	agent   agentFlag
	out     outputFlag
	request api.Request
	read    string
	wide    bool
	cost    bool // of the request, not its answer

	// Of a table that is followed: which columns there were, and how wide.
	titles []string
	widths []int
	fit    view.Fit
}

// answers is what makes an answer one of a verb.
type answers struct {
	verb    string
	columns func(m view.Merging, rows []api.Row, keep []string) []view.Column
	extras  func(view.Merging, *api.Row) []view.Extra // values in addition to the fields of a row; nil: none
}

func newFlowsCommand() *cobra.Command {
	f := &flowsCommand{answers: answers{verb: "flows", columns: view.Merging.Columns}}
	cmd := &cobra.Command{
		Use:   "flows [FILTER]",
		Short: "Show recent flows, from the running agent or a capture",
		Long: `Flows shows recent flows of the running agent, grouped by any keys, largest first. With
--follow it shows each scan interval as it ends.

A filter combines tests with and, or, not and parentheses. Most expressions of tcpdump
work unchanged:

  tcp dst port 443               host 10.0.4.2 and not port 22
  port 80 or 443 or 8000-8099    src net 10/8 and dst net 2001:db8::/32
  iface veth* and not icmp       host www.example.com and port https
  bytes > 10MB and rtt > 50ms    tcp_flags syn and not tcp_flags ack

The shell interprets ( ) < > ! & | and *: quote filters that contain them. For all
fields and their values see waymark help filter.

The keys to group by are ` + strings.Join(keyNames(), ", ") + `.
src and dst can be shortened to a prefix: src/24 for IPv4, src/64 for IPv6, src/24/48 for
both.

A forwarded packet is seen on several interfaces. It is counted once, where it was seen
first; rows of an interface or direction include everything seen there, and --everywhere
counts it on every interface. An analyzer counts a flow at the host that is nearest to its
source; rows by host include everything that the host counted. --by transit shows each
flow once, with its input and output interface; --by in,out shows the traffic between each
pair of interfaces.`,
		Example: `  waymark flows
  waymark flows tcp and dport 443 --since 5m --sort rtt
  waymark flows --by conversation --limit 10
  waymark flows --by in,out
  waymark flows --since 14:00 --until 15:00 --by dst/24 --step 5m
  waymark flows --by src/24/64,dport -o csv
  waymark flows --follow -o jsonl | jq .bytes
  waymark flows --read trace.pcapng udp`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.register(cmd, "flow", "bytes")
	cmd.Flags().BoolVar(&f.cost, "explain", false, "show what the query would read, without running it")
	cmd.Flags().StringVar(&f.read, "read", "", "read flows from a capture `FILE` (pcap, pcapng) instead of the agent")
	return cmd
}

// register adds the flags of every verb that asks for flows.
func (f *flowsCommand) register(cmd *cobra.Command, by, sort string) {
	f.out.register(cmd, outputTable, outputJSON, outputJSONL, outputCSV)
	flags := cmd.Flags()
	flags.StringVarP(&f.request.Filter, "filter", "f", "", "show only flows that match the filter `EXPR`; --filter may be omitted")
	flags.StringVarP(&f.request.By, "by", "b", by, "group by `KEYS`, separated by commas")
	flags.StringVarP(&f.request.Sort, "sort", "s", sort, "sort by `KEY`: "+strings.Join(query.SortNames(), ", ")+" or a key of --by")
	flags.BoolVarP(&f.request.Reverse, "reverse", "r", false, "reverse order: sums smallest first, keys largest first")
	flags.BoolVar(&f.request.Everywhere, "everywhere", false, "count a packet on every interface and at every host that it passes, instead of once")
	flags.StringVar(&f.request.Hosts, "host", "", "show what the hosts `NAMES`, separated by commas, saw, of those that an analyzer has")
	flags.IntVarP(&f.request.Limit, "limit", "n", 20, "show `N` rows; 0 is all")
	flags.StringVar(&f.request.Since, "since", "", "only what was counted since `TIME`: 90s, 5m, 1d, 09:50, or a date and time")
	flags.StringVar(&f.request.Until, "until", "", "only what was counted until `TIME`, written as --since")
	command.DurationVar(flags, &f.request.Step, "step", 0, "show each row for each step of `TIME`: 1m, 1h; --limit counts rows without steps")
	command.DurationVar(flags, &f.request.Timeout, "timeout", 0, "show what was found after `TIME`; 0 is "+query.DefaultBudget().Time.String())
	flags.BoolVarP(&f.request.Follow, "follow", "F", false, "show each scan interval as it ends")
	command.DurationVar(flags, &f.request.Every, "every", 0, "with --follow: request scan intervals of at most `TIME`")
	flags.BoolVarP(&f.wide, "wide", "w", false, "show all columns, even if the table is wider than the terminal")
	f.agent.register(cmd)
	cmd.ValidArgsFunction = completeFilter
	_ = cmd.RegisterFlagCompletionFunc("by", completeList(keyNames()))
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(query.SortNames(), cobra.ShellCompDirectiveNoFileComp))
}

func keyNames() []string {
	var names []string
	for _, k := range query.KeyDocs() {
		names = append(names, k.Name)
	}
	return names
}

func (f *flowsCommand) run(cmd *cobra.Command, args []string) error {
	if err := f.check(cmd, args); err != nil {
		return err
	}
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if f.cost {
		return f.printCost(cmd, stdout)
	}
	if f.request.Follow {
		return f.follow(cmd, func(a api.Answer) error { return f.print(stdout, stderr, a) })
	}
	answer, failed, err := f.ask(cmd)
	if err != nil {
		return err
	}
	if err := f.print(stdout, stderr, answer); err != nil {
		return err
	}
	return failed
}

// follow hands on what the agent says until the user interrupts it, as is the
// way to end it.
func (f *flowsCommand) follow(cmd *cobra.Command, emit func(api.Answer) error) error {
	ctx, release := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer release()
	err := f.agent.client().Follow(ctx, f.request, emit)
	switch {
	case ctx.Err() != nil:
		return nil
	case err == nil:
		return errors.New("the agent has stopped")
	}
	return err
}

// check finds mistakes before the agent is asked.
func (f *flowsCommand) check(cmd *cobra.Command, args []string) (err error) {
	if f.request.Filter, err = filterOf(cmd, f.request.Filter, args); err != nil {
		return err
	}
	if f.request.Limit < 0 {
		return command.UsageErrorf("%s: --limit %d: write a number of rows, or 0 for all", f.verb, f.request.Limit)
	}
	if f.cost && f.request.Follow {
		return command.UsageErrorf("%s: --follow has no end, and so no cost: omit --explain", f.verb)
	}
	if f.request.Follow && f.out.format == outputJSON {
		return command.UsageErrorf("%s: -o json is one document and --follow has no end: use -o jsonl", f.verb)
	}
	if cmd.Flags().Changed("every") {
		switch {
		case !f.request.Follow:
			return command.UsageErrorf("%s: --every needs --follow", f.verb)
		case f.request.Every < api.MinEvery:
			return command.UsageErrorf("%s: --every %v: the minimum is %v", f.verb, f.request.Every, api.MinEvery)
		}
	}
	if err := f.checkRead(); err != nil {
		return err
	}
	now := time.Now()
	if err := absoluteTimes(f.verb, now, &f.request.Since, &f.request.Until); err != nil {
		return err
	}
	q, err := f.request.Query(now)
	if err == nil {
		err = q.Check()
	}
	if err != nil {
		return command.UsageErrorf("%s: %w", f.verb, err)
	}
	return nil
}

// checkRead refuses what a capture cannot answer.
func (f *flowsCommand) checkRead() error {
	switch {
	case f.read == "":
		return nil
	case f.request.Follow:
		return command.UsageErrorf("%s: --follow needs an agent, but --read %s is a capture: omit one of them", f.verb, f.read)
	case f.request.Since != "", f.request.Until != "":
		return command.UsageErrorf("%s: --since and --until are relative to now, but --read %s is a capture: omit one of them", f.verb, f.read)
	case f.request.Step != 0, f.cost:
		return command.UsageErrorf("%s: --step and --explain need an agent, but --read %s is a capture: omit one of them", f.verb, f.read)
	case f.request.Hosts != "":
		return command.UsageErrorf("%s: --host needs an analyzer, but --read %s is a capture: omit one of them", f.verb, f.read)
	case f.agent.socket != "":
		return command.UsageErrorf("%s: --socket needs an agent, but --read %s is a capture: omit one of them", f.verb, f.read)
	}
	return nil
}

// ask returns with failed what an answer lacks.
func (f *flowsCommand) ask(cmd *cobra.Command) (answer api.Answer, failed, err error) {
	if f.read != "" {
		return readCapture(cmd.Context(), f.read, f.request)
	}
	answer, err = f.agent.client().Flows(cmd.Context(), f.request)
	return answer, nil, err
}

// print writes an answer to stdout, and what is to be said of it to stderr.
func (f *flowsCommand) print(stdout, stderr io.Writer, a api.Answer) error {
	if err := warn(stderr, a); err != nil {
		return err
	}
	keys, err := query.ParseBy(f.request.By)
	if err != nil {
		return err
	}
	switch f.out.format {
	case outputJSON:
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(a)
	case outputJSONL:
		return printLines(stdout, a.Rows)
	case outputCSV:
		return f.printCSV(stdout, keys, a)
	}
	by := view.NewMerging(keys).SortedBy(f.request.Sort).Stepped(f.request.Step)
	if f.request.Follow {
		return f.printFollowed(stdout, stderr, by, a)
	}
	if len(a.Rows) > 0 {
		if err := by.Table(f.shown(stdout, by, a.Rows), a.Rows).Write(stdout, f.fit.Width); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(stderr, f.summary(a))
	return err
}

// warn says that an answer covers less than was asked, in every format.
func warn(stderr io.Writer, a api.Answer) error {
	for _, text := range a.Warnings() {
		if _, err := fmt.Fprintln(stderr, "waymark: "+text); err != nil {
			return err
		}
	}
	return nil
}

// shown are the columns that have something to show and room on the terminal.
func (f *flowsCommand) shown(stdout io.Writer, by view.Merging, rows []api.Row, before ...view.Column) []view.Column {
	if !f.wide {
		f.fit.Width = term.Width(stdout)
	}
	return f.fit.Columns(by, append(before, f.columns(by, rows, f.titles)...), rows)
}

func printLines(w io.Writer, rows []api.Row) error {
	var b []byte
	for i := range rows {
		b = append(append(b, rows[i].JSON...), '\n')
	}
	_, err := w.Write(b)
	return err
}

// summary reports what the rows are part of.
func (f *flowsCommand) summary(a api.Answer) string {
	if f.read != "" && a.From.IsZero() && a.To.IsZero() && a.Groups == 0 {
		return f.read + " has no IP packets"
	}
	if a.To.IsZero() && a.Warning() != "" {
		return "no scan interval ended in that time"
	}
	if since, err := time.Parse(time.RFC3339Nano, f.request.Since); err == nil && a.To.IsZero() {
		return "no scan interval has ended since " + since.Format(time.DateTime) + ": choose an earlier --since"
	}
	if a.To.IsZero() {
		return "no scan interval has ended yet: try again in a few seconds"
	}
	s := fmt.Sprintf("%d of %s; %s, %s; %s to %s",
		len(a.Rows), term.Number(uint64(a.Groups), "rows"), term.Number(a.Total.Packets, "packets"), term.Number(a.Total.Bytes, "bytes"),
		a.From.Local().Format(time.TimeOnly), a.To.Local().Format(time.TimeOnly))
	if len(a.Rows) < a.Groups {
		s += "; --limit 0 shows all"
	}
	if n := a.Repeated.Packets; n > 0 {
		where := "on a further interface"
		if a.SharedFlows > 0 {
			where = "on a further interface or host"
		}
		s += fmt.Sprintf("; %s seen %s, counted once", term.Number(n, "packets"), where)
	}
	if n := a.UnsureFlows; n > 0 {
		s += fmt.Sprintf("; which host %s passed first is not certain (waymark points)", term.Number(n, "flows"))
	}
	if n := a.BehindFlows; n > 0 {
		s += fmt.Sprintf("; of %s, a further host counted more packets (--by host)", term.Number(n, "flows"))
	}
	if a.Summed > 0 {
		s += fmt.Sprintf("; %s beyond the size of the history, shown as a sum", term.Number(a.Summed, "records"))
	}
	if a.Sampling > 1 {
		s += fmt.Sprintf("; one packet in %d was counted", a.Sampling)
	}
	return s
}

// printFollowed writes the rows of an interval below those before, in the same
// columns as long as they do.
func (f *flowsCommand) printFollowed(stdout, stderr io.Writer, by view.Merging, a api.Answer) error {
	if a.Missed > 0 {
		if _, err := fmt.Fprintf(stderr, "%s missed: this reader is too slow\n", term.Number(uint64(a.Missed), "intervals")); err != nil {
			return err
		}
	}
	if len(a.Rows) == 0 {
		return nil
	}
	columns := f.shown(stdout, by, a.Rows, view.Fixed("TIME", a.To.Local().Format(time.TimeOnly)))
	t := by.Table(columns, a.Rows)
	widths := t.Widths(f.fit.Width, f.widths)
	if titles := view.Titles(columns); !slices.Equal(f.titles, titles) {
		f.titles = titles
		widths = t.Widths(f.fit.Width, nil)
		if err := t.WriteTitle(stdout, widths); err != nil {
			return err
		}
	}
	f.widths = widths
	return t.WriteRows(stdout, widths)
}

// printCSV writes all that is in the JSON of a row, under the same names.
func (f *flowsCommand) printCSV(w io.Writer, by query.By, a api.Answer) error {
	out := csv.NewWriter(w)
	fields, extras := api.RowFields(by.Keys, f.request.Step), func(*api.Row) []view.Extra { return nil }
	if f.extras != nil {
		extras = func(w *api.Row) []view.Extra { return f.extras(view.NewMerging(by), w) }
	}
	if f.titles == nil {
		for _, field := range fields {
			f.titles = append(f.titles, field.Name)
		}
		for _, x := range extras(&api.Row{}) {
			f.titles = append(f.titles, x.Name)
		}
		if err := out.Write(f.titles); err != nil {
			return err
		}
	}
	origin := flow.Origin{Host: a.Host, Sampling: a.Sampling}
	for i := range a.Rows {
		cells := make([]string, 0, len(f.titles))
		for _, field := range fields {
			cells = append(cells, field.Text(&origin, &a.Rows[i].Row))
		}
		for _, x := range extras(&a.Rows[i]) {
			cells = append(cells, x.Text)
		}
		if err := out.Write(cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
