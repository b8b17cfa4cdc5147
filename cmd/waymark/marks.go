package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/term"
)

func newMarksCommand() *cobra.Command {
	var agent agentFlag
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "marks",
		Short: "Show single packets that carry PDM, live",
		Long: `Marks shows each packet that the running agent marks, or whose mark it reads, until
interrupted: its sequence numbers and times (PDM, RFC 8250), and the delays computed
from them. The agent must run with pdm.raw: true. It reports at most
pdm.raw_per_second packets per second and CPU, and counts the rest (events_lost in
waymark status). waymark delays does not need pdm.raw.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return agent.client().Marks(cmd.Context(), markPrinter(cmd.OutOrStdout(), out.format))
		},
	}
	agent.register(cmd)
	out.register(cmd, outputTable, outputJSONL, outputCSV)
	return cmd
}

// markPrinter writes each mark as it comes.
func markPrinter(w io.Writer, format string) func(api.Mark) error {
	switch format {
	case outputJSONL:
		return func(m api.Mark) error { return json.NewEncoder(w).Encode(m) }
	case outputCSV:
		out := csv.NewWriter(w)
		writeNames(out, markColumns)
		return func(m api.Mark) error {
			err := writeValues(out, markColumns, m)
			out.Flush()
			return errors.Join(err, out.Error())
		}
	}
	return func(m api.Mark) error { return printMark(w, m) }
}

// markColumns are those of JSON, under the names that waymark decode has.
var markColumns = []column[api.Mark]{
	{"time", func(m api.Mark) any { return timeValue(m.Time) }},
	{"iface", func(m api.Mark) any { return m.Iface }},
	{"netns", func(m api.Mark) any { return nonEmpty(m.Netns) }},
	{"direction", func(m api.Mark) any { return m.Direction }},
	{"proto", func(m api.Mark) any { return protocol(m.Proto) }},
	{"src", func(m api.Mark) any { return m.Src }},
	{"sport", func(m api.Mark) any { return m.SrcPort }},
	{"dst", func(m api.Mark) any { return m.Dst }},
	{"dport", func(m api.Mark) any { return m.DstPort }},
	{"psntp", func(m api.Mark) any { return m.PSNTP }},
	{"psnlr", func(m api.Mark) any { return m.PSNLR }},
	{"dtlr_ns", func(m api.Mark) any { return m.DTLR.Nanoseconds() }},
	{"dtls_ns", func(m api.Mark) any { return m.DTLS.Nanoseconds() }},
	{"missed", func(m api.Mark) any { return m.Missed }},
	{"arrival", func(m api.Mark) any { return nonEmpty(m.Arrival) }},
	{"suspicious", func(m api.Mark) any { return nonEmpty(m.Suspicious) }},
	{"server_ns", func(m api.Mark) any { return known(m.Server > 0, m.Server) }},
	{"network_ns", func(m api.Mark) any { return known(m.Network > 0, m.Network) }},
}

// printMark writes a line as tcpdump would, this host first.
func printMark(w io.Writer, m api.Mark) error {
	arrow, local, remote := ">", netip.AddrPortFrom(m.Src, m.SrcPort), netip.AddrPortFrom(m.Dst, m.DstPort)
	if m.Direction == flow.Ingress.String() {
		arrow, local, remote = "<", remote, local
	}
	line := fmt.Sprintf("%s %s %s %s %s %s PSN %d, last received %d, DTLR %s, DTLS %s",
		m.Time.Local().Format("15:04:05.000000"), m.Iface, flow.ProtoName(m.Proto), local, arrow, remote,
		m.PSNTP, m.PSNLR, term.Duration(m.DTLR), term.Duration(m.DTLS))
	for _, reported := range []struct {
		what string
		time time.Duration
	}{{"server", m.Server}, {"network", m.Network}} {
		if reported.time > 0 {
			line += fmt.Sprintf(", %s %s", reported.what, term.Duration(reported.time))
		}
	}
	if m.Suspicious != "" {
		line += ", suspicious: " + m.Suspicious
	}
	_, err := fmt.Fprintln(w, line)
	return err
}
