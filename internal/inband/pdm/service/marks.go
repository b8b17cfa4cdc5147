package service

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	inbandpdm "github.com/waymark-net/waymark/internal/inband/pdm"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/internal/term"
)

// Mark is one packet that was marked, or whose mark was read (RFC 8250).
type Mark struct {
	Time      time.Time      `json:"time"`
	Iface     string         `json:"iface"`
	Netns     string         `json:"netns,omitempty"`
	Direction string         `json:"direction"`
	Proto     uint8          `json:"proto"`
	Local     netip.AddrPort `json:"local"` // port 0 where the protocol has none; of a ping, its identifier
	Remote    netip.AddrPort `json:"remote"`

	PSNTP uint16        `json:"psntp"`
	PSNLR uint16        `json:"psnlr"`
	DTLR  time.Duration `json:"dtlr_ns"`
	DTLS  time.Duration `json:"dtls_ns"`

	// Lost is how many marks before this one the reader was too slow for.
	Lost uint64 `json:"lost,omitempty"`

	// Of packets read, what they reported; absent when that was nothing.
	Arrival    string        `json:"arrival,omitempty"`
	Suspicious string        `json:"suspicious,omitempty"`
	Server     time.Duration `json:"server_ns,omitempty"`
	Network    time.Duration `json:"network_ns,omitempty"`
}

// Line implements api.Event.
func (m *Mark) Line(lost uint64) ([]byte, error) {
	sent := *m
	sent.Lost = lost
	return json.Marshal(&sent)
}

// marksPath is where the API has them.
const marksPath = "/api/v1/marks"

var marksStream = api.Stream{
	Path: marksPath,
	Doc:  "Single packets that carry PDM, as `waymark marks -o jsonl` shows them, where `pdm.raw` is true",
	Missing: &api.Error{
		Status: http.StatusNotFound, What: "this agent does not report single marked packets",
		How: "start it with pdm.raw: true and a policy in pdm.policies",
	},
}

// stream emits marked packets one by one.
func (s *service) stream(ctx context.Context, emit func(api.Event)) error {
	return s.marker.Stream(ctx, func(e *inbandpdm.Event) {
		m := Mark{
			Time: e.Time, Direction: e.Direction.String(), Proto: e.Proto, Local: e.Local, Remote: e.Remote,
			PSNTP: e.Option.PSNTP, PSNLR: e.Option.PSNLR,
		}
		m.Iface, m.Netns = s.deps.IfaceName(e.Iface)
		m.DTLR, m.DTLS = e.Option.DTLR(), e.Option.DTLS()
		if e.Direction == flow.Ingress {
			m.Arrival, m.Suspicious = e.Arrival.String(), e.Suspicion.String()
		}
		if e.HasServer {
			m.Server = e.Server
		}
		if e.HasNetwork {
			m.Network = e.Network
		}
		emit(&m)
	})
}

var marksVerb = stage.Verb{
	Name:  "marks",
	Short: "Show single packets that carry PDM, live",
	Long: `Marks shows each packet that the running agent marks, or whose mark it reads, until
interrupted: its sequence numbers and times (PDM, RFC 8250), and the delays computed
from them. The agent must run with pdm.raw: true. It reports at most
pdm.raw_per_second packets per second and CPU, and counts the rest (events_lost in
waymark status). waymark delays does not need pdm.raw.`,
	Formats: []string{"table", "jsonl"},
	Run: func(ctx context.Context, agent *api.Client, out io.Writer, format string) error {
		return agent.Stream(ctx, marksPath, func(event json.RawMessage) error {
			if format == "jsonl" {
				_, err := fmt.Fprintf(out, "%s\n", event)
				return err
			}
			var m Mark
			if err := json.Unmarshal(event, &m); err != nil {
				return err
			}
			return printMark(out, &m)
		})
	},
}

// printMark writes a line as tcpdump would.
func printMark(w io.Writer, m *Mark) error {
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
