package service

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
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
	Time      time.Time  `json:"time"`
	Iface     string     `json:"iface"`
	Netns     string     `json:"netns,omitempty"`
	Direction string     `json:"direction"`
	Proto     uint8      `json:"proto"`
	Src       netip.Addr `json:"src"`
	SrcPort   uint16     `json:"sport"` // 0 where the protocol has none; of a ping, its identifier
	Dst       netip.Addr `json:"dst"`
	DstPort   uint16     `json:"dport"`

	PSNTP uint16        `json:"psntp"`
	PSNLR uint16        `json:"psnlr"`
	DTLR  time.Duration `json:"dtlr_ns"`
	DTLS  time.Duration `json:"dtls_ns"`

	// Missed is how many marks before this one the reader was too slow for.
	Missed uint64 `json:"missed,omitempty"`

	// Of packets read, what they reported; absent when that was nothing.
	Arrival    string        `json:"arrival,omitempty"`
	Suspicious string        `json:"suspicious,omitempty"`
	Server     time.Duration `json:"server_ns,omitempty"`
	Network    time.Duration `json:"network_ns,omitempty"`
}

// Line implements api.Event.
func (m *Mark) Line(missed uint64) ([]byte, error) {
	sent := *m
	sent.Missed = missed
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
			Time: e.Time, Direction: e.Direction.String(), Proto: e.Proto,
			PSNTP: e.Option.PSNTP, PSNLR: e.Option.PSNLR,
		}
		src, dst := e.Local, e.Remote
		if e.Direction == flow.Ingress {
			src, dst = dst, src
		}
		m.Src, m.SrcPort, m.Dst, m.DstPort = src.Addr(), src.Port(), dst.Addr(), dst.Port()
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
	Formats: []string{"table", "jsonl", "csv"},
	Run: func(ctx context.Context, c stage.Call) error {
		print := markPrinter(c.Out, c.Format)
		return c.Agent.Stream(ctx, marksPath, func(event json.RawMessage) error {
			var m Mark
			if err := json.Unmarshal(event, &m); err != nil {
				return err
			}
			return print(&m)
		})
	},
}

// markPrinter writes each mark as it comes.
func markPrinter(w io.Writer, format string) func(*Mark) error {
	switch format {
	case "jsonl":
		return func(m *Mark) error { return json.NewEncoder(w).Encode(m) }
	case "csv":
		out := csv.NewWriter(w)
		row := func(cell func(column) string) error {
			var cells []string
			for _, c := range columns {
				cells = append(cells, cell(c))
			}
			err := out.Write(cells)
			out.Flush()
			return errors.Join(err, out.Error())
		}
		named := row(func(c column) string { return c.name })
		return func(m *Mark) error { return errors.Join(named, row(func(c column) string { return c.text(m) })) }
	}
	return func(m *Mark) error { return printMark(w, m) }
}

// column is one of CSV.
type column struct {
	name string
	text func(*Mark) string
}

// columns are those of JSON, under the names that waymark decode has.
var columns = []column{
	{"time", func(m *Mark) string { return m.Time.UTC().Format("2006-01-02T15:04:05.000000000Z") }},
	{"iface", func(m *Mark) string { return m.Iface }},
	{"netns", func(m *Mark) string { return m.Netns }},
	{"direction", func(m *Mark) string { return m.Direction }},
	{"proto", func(m *Mark) string { return flow.ProtoName(m.Proto) }},
	{"src", func(m *Mark) string { return m.Src.String() }},
	{"sport", func(m *Mark) string { return fmt.Sprint(m.SrcPort) }},
	{"dst", func(m *Mark) string { return m.Dst.String() }},
	{"dport", func(m *Mark) string { return fmt.Sprint(m.DstPort) }},
	{"psntp", func(m *Mark) string { return fmt.Sprint(m.PSNTP) }},
	{"psnlr", func(m *Mark) string { return fmt.Sprint(m.PSNLR) }},
	{"dtlr_ns", func(m *Mark) string { return fmt.Sprint(m.DTLR.Nanoseconds()) }},
	{"dtls_ns", func(m *Mark) string { return fmt.Sprint(m.DTLS.Nanoseconds()) }},
	{"missed", func(m *Mark) string { return fmt.Sprint(m.Missed) }},
	{"arrival", func(m *Mark) string { return m.Arrival }},
	{"suspicious", func(m *Mark) string { return m.Suspicious }},
	{"server_ns", func(m *Mark) string { return known(m.Server) }},
	{"network_ns", func(m *Mark) string { return known(m.Network) }},
}

func known(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprint(d.Nanoseconds())
}

// printMark writes a line as tcpdump would, this host first.
func printMark(w io.Writer, m *Mark) error {
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
