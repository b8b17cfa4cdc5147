package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/analyze/state"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/stage/list"
	"github.com/waymark-net/waymark/internal/term"
)

func newStatusCommand() *cobra.Command {
	var agent agentFlag
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Report the state of the running agent: hooks, table, coverage, losses",
		Long: `Status reports the interfaces on which the agent counts, the use of its flow table,
coverage (counted packets compared with the interface's own counters), and every loss
with its reason. Counters start at zero when the agent starts.

A GSO or GRO burst is one frame of several packets. An interface counts frames or
packets, depending on its offloads, so status shows both next to the interface's own
counter.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := agent.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			return printStatus(cmd.OutOrStdout(), &s, out.format)
		},
	}
	out.register(cmd, outputTable, outputJSON)
	agent.register(cmd)
	return cmd
}

func printStatus(w io.Writer, s *obs.Status, format string) error {
	if format == outputJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(s)
	}
	if s.Has("analyze") {
		return state.Text(w, s)
	}
	for _, part := range []func(io.Writer, *obs.Status) error{
		statusAgent, statusHooks, statusCoverage, statusTotals, statusStages, statusExporters, statusMemory, statusLosses, statusPrograms,
	} {
		if err := part(w, s); err != nil {
			return err
		}
	}
	return nil
}

// statusAgent is a line for each thing that there is one of.
func statusAgent(w io.Writer, s *obs.Status) error {
	t, d := &s.Table, &s.Drain
	fill := 0.0
	if t.MaxEntries > 0 {
		fill = float64(t.Entries) / float64(t.MaxEntries)
	}
	lines := []struct{ name, text string }{
		{"agent", fmt.Sprintf("waymark %s on %s, pid %d, up %s", s.Version, s.Host, s.PID, term.Duration(s.Now.Sub(s.Started)))},
		{"probe", s.Probe},
		{"table", fmt.Sprintf("%d of %d flows (%s), %sB; %s evicted, %s unattributed; %s live in the agent, %s exported early",
			t.Entries, t.MaxEntries, term.Percent(fill), term.Count(t.MemoryBytes), term.Count(t.Evicted), term.Number(t.Unattributed, "packets"), term.Count(t.Live), term.Count(t.Shed))},
		{"drain", drainText(d)},
		{"history", historyText(s)},
		{"access", accessText(s)},
		{"links", topologyText(s)},
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%-8s%s\n", l.name, term.Printable(l.text)); err != nil {
			return err
		}
	}
	return nil
}

func drainText(d *obs.Drain) string {
	s := fmt.Sprintf("every %s; %s, %s, %s so far", term.Duration(d.Interval), term.Number(d.Count, "drains"), term.Number(d.Deltas, "deltas"), term.Number(d.Records, "records"))
	if d.Count > 0 {
		s += fmt.Sprintf("; the last took %s", term.Duration(d.Last))
		if d.Grace > 0 {
			s += fmt.Sprintf(", %s of it waiting", term.Duration(d.Grace))
		}
	}
	if d.Errors > 0 {
		s += fmt.Sprintf("; %s failed", term.Count(d.Errors))
	}
	return s
}

func statusHooks(w io.Writer, s *obs.Status) error {
	t := &term.Table{Columns: []term.Column{{Title: "HOOK"}, {Title: "DIR"}, {Title: "MODE"}, {Title: "STATE"}, {Title: ""}}}
	for _, h := range s.Hooks {
		t.Add(obs.Place(h.Netns, h.Iface), term.ShortDirection(h.Direction), dash(h.Mode), h.State, h.Error+h.Warning)
	}
	return term.Section(w, t)
}

func statusCoverage(w io.Writer, s *obs.Status) error {
	t := &term.Table{Columns: []term.Column{
		{Title: "COVERAGE"},
		{Title: "DIR"},
		{Title: "COVERED", Right: true},
		{Title: "PACKETS", Right: true},
		{Title: "FRAMES", Right: true},
		{Title: "INTERFACE", Right: true},
		{Title: "IN NO FLOW"},
	}}
	for _, i := range s.Interfaces {
		var reasons []string
		for _, r := range i.Uncounted {
			reasons = append(reasons, r.Reason+" "+term.Count(r.Packets))
		}
		t.Add(obs.Place(i.Netns, i.Iface), term.ShortDirection(i.Direction), term.Percent(i.Coverage),
			term.Count(i.Packets), term.Count(i.Frames), term.Count(i.IfacePackets), strings.Join(reasons, ", "))
	}
	return term.Section(w, t)
}

func statusTotals(w io.Writer, s *obs.Status) error {
	t := &term.Table{Columns: []term.Column{
		{Title: "TOTAL"},
		{Title: "DIR"},
		{Title: "PROTO"},
		{Title: "PACKETS", Right: true},
		{Title: "BYTES", Right: true},
		{Title: "ON THE WIRE", Right: true},
	}}
	for _, n := range s.Totals {
		t.Add(obs.Place(n.Netns, n.Iface), term.ShortDirection(n.Direction), n.Protocol, term.Count(n.Packets), term.Count(n.Bytes), term.Count(n.WireBytes))
	}
	return term.Section(w, t)
}

// statusStages shows the sections of the stages.
func statusStages(w io.Writer, s *obs.Status) error {
	for _, k := range list.Kinds() {
		if k.Text == nil {
			continue
		}
		if err := k.Text(w, s); err != nil {
			return err
		}
	}
	return nil
}

// statusMemory shows the budget where there is a limit; the rest is in the JSON.
func statusMemory(w io.Writer, s *obs.Status) error {
	t := &term.Table{Columns: memoryColumns}
	if s.Memory.Limit > 0 {
		addShares(t, s.Memory)
	}
	return term.Section(w, t)
}

var memoryColumns = []term.Column{
	{Title: "MEMORY"}, {Title: "BYTES", Right: true}, {Title: "ELEMENTS", Right: true}, {Title: "WANTED", Right: true}, {Title: "BOUNDED BY"},
}

func addShares(t *term.Table, m obs.Memory) {
	var sum uint64
	for _, share := range m.Shares {
		count, wanted := "-", "-"
		if share.Bytes != share.Count {
			count, wanted = term.Count(share.Count), term.Count(share.Wanted)
		}
		t.Add(share.Name, term.Count(share.Bytes), count, wanted, dash(share.Key))
		sum += share.Bytes
	}
	t.Add("total", term.Count(sum), "-", "-", dash(m.File)+" "+term.Count(m.Limit))
}

func statusExporters(w io.Writer, s *obs.Status) error {
	t := &term.Table{Columns: []term.Column{
		{Title: "EXPORTER"},
		{Title: "TARGET", Least: 12},
		{Title: "EXPORTED", Right: true},
		{Title: "FILTERED", Right: true},
		{Title: "QUEUED", Right: true},
		{Title: "RETRIES", Right: true},
		{Title: "LOST", Right: true},
		{Title: "LAST ERROR"},
	}}
	for _, e := range s.Exporters {
		var lost uint64
		for _, l := range e.Lost {
			lost += l.Count
		}
		t.Add(e.Name, e.Target, term.Count(e.Exported), term.Count(e.Filtered), queueText(&e), term.Count(e.Retries), term.Count(lost), e.LastError)
	}
	return term.Section(w, t)
}

func statusLosses(w io.Writer, s *obs.Status) error {
	t := &term.Table{Columns: []term.Column{{Title: "LOSS"}, {Title: "REASON"}, {Title: "COUNT", Right: true}}}
	for _, l := range s.Losses {
		t.Add(l.Where, l.Reason, term.Count(l.Count))
	}
	if n := s.API.Dropped; n > 0 {
		t.Add("followers", "too_slow", term.Count(n))
	}
	if len(t.Rows) == 0 {
		return term.Heading(w, "LOSS  none")
	}
	return term.Section(w, t)
}

// statusPrograms shows run times where the kernel keeps them.
func statusPrograms(w io.Writer, s *obs.Status) error {
	t := &term.Table{Columns: []term.Column{{Title: "PROGRAM"}, {Title: "ID", Right: true}, {Title: "RUNS", Right: true}, {Title: "EACH", Right: true}}}
	for _, p := range s.Programs {
		if p.RunCount == 0 {
			continue // kernel.bpf_stats_enabled is 0
		}
		t.Add(p.Name, fmt.Sprint(p.ID), term.Count(p.RunCount), term.Duration(p.RunTime/time.Duration(p.RunCount)))
	}
	return term.Section(w, t)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// queueText is how full the queue of an exporter is: of one in memory in records, of one on disk in bytes, too.
func queueText(e *obs.Exporter) string {
	if e.QueueBytes == 0 {
		return fmt.Sprintf("%d/%d", e.Queued, e.QueueSize)
	}
	return fmt.Sprintf("%d, %sB/%sB", e.Queued, term.Count(e.QueuedBytes), term.Count(e.QueueBytes))
}
