package main

import (
	"encoding/json"
	"fmt"
	"io"
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
			w := cmd.OutOrStdout()
			return agent.client().Marks(cmd.Context(), func(m api.Mark) error {
				if out.format == outputJSONL {
					return json.NewEncoder(w).Encode(m)
				}
				return printMark(w, m)
			})
		},
	}
	agent.register(cmd)
	out.register(cmd, outputTable, outputJSONL)
	return cmd
}

// printMark writes a line as tcpdump would.
func printMark(w io.Writer, m api.Mark) error {
	arrow := ">"
	if m.Direction == flow.Ingress.String() {
		arrow = "<"
	}
	line := fmt.Sprintf("%s %s %s %s %s %s PSN %d, last received %d, DTLR %s, DTLS %s",
		m.Time.Local().Format("15:04:05.000000"), m.Iface, flow.ProtoName(m.Proto), m.Local, arrow, m.Remote,
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
