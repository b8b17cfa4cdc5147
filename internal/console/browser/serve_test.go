// Package browser has the tests of the console in a real browser.
package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	running "github.com/waymark-net/waymark/internal/agent"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/console"
	"github.com/waymark-net/waymark/internal/flow"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/lab/past"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/verdict"
)

// agent serves the console over a generated hour; its address is on loopback.
func agent(ctx context.Context, t *testing.T, listen string) (*store.Store, string) {
	t.Helper()
	history := store.New(store.Default())
	fill(history, time.Now())
	return history, serve(ctx, t, listen, history)
}

// serve answers from a history; its address is on loopback.
func serve(ctx context.Context, t *testing.T, listen string, history api.History) string {
	t.Helper()
	server := newServer(t, listen, history)
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Run(ctx) }()
	return "http://" + server.Addrs()[0].String()
}

// newServer answers from records.
func newServer(t *testing.T, listen string, history api.History) *api.Server {
	t.Helper()
	pages, ok := console.New()
	if !ok {
		t.Fatal("the console is not built: run 'make build'")
	}
	ledger := verdict.NewLedger()
	ledger.Add(time.Now().Add(-past.Length), nil)
	examiner := verdict.New(verdict.Deps{
		Host: "alpha", Sampling: 1, History: history, Ledger: ledger, Thresholds: thresholds,
		Wiring: func() *flow.Wiring { return nil }, Places: places, Speed: func(string, string) uint64 { return 1e9 },
		Connections: func(string) ([]verdict.Connection, error) { return nil, nil },
		Conditions:  func() []verdict.Condition { return nil },
	})
	ended := make(chan struct{})
	go func() { defer close(ended); examiner.Run(t.Context(), time.Now) }()
	t.Cleanup(func() { <-ended })
	var server *api.Server
	server = api.New(api.Config{Listen: listen}, api.Deps{
		Origin: flow.Origin{Host: "alpha", Sampling: 1}, History: history, Console: pages,
		Status: func() obs.Status { return status(server) }, Ready: func() error { return nil }, Pages: gatePages(),
		Why: func(ctx context.Context, r api.WhyRequest) (any, error) {
			since, until, err := r.Range(time.Now())
			if err != nil {
				return nil, err
			}
			return examiner.Examine(ctx, verdict.Request{Filter: r.Filter, Since: since, Until: until}, time.Now())
		},
	})
	return server
}

// fill adds the hour that ends now.
func fill(history *store.Store, now time.Time) {
	past.New(now, 1).Intervals(func(from, to time.Time, records []flow.Record) {
		iv := history.Begin(from)
		for i := range records {
			trace(&records[i])
			iv.Add(&records[i])
		}
		iv.End(to)
	})
}

// traced is a path of which the API has the nodes.
const traced = flow.IOAMPathID(0x7a3e51)

// trace has the answers of one service carry IOAM options.
func trace(r *flow.Record) {
	if r.SrcPort == 6379 {
		r.IOAM = &flow.IOAM{IOAMPath: flow.IOAMPath{ID: traced, Namespace: 123, Hops: 4, Nodes: "2-3-4-5"}, Packets: r.Packets, Received: r.Packets, Lost: int64(r.Packets / 200)}
	}
}

// pathsPage are the nodes of that path: the third one takes long.
func pathsPage() (any, error) {
	times := func(p50 time.Duration) *ioamservice.Times {
		return &ioamservice.Times{Count: 8120, Mean: p50, Min: p50 / 2, P50: p50, P90: 2 * p50, Max: 9 * p50}
	}
	p := ioamservice.Path{ID: traced.String(), Namespace: 123, TraceType: "F40000", Iface: "eth1", Delay: times(1200 * time.Microsecond), Packets: 8120}
	for i, transit := range []time.Duration{9, 14, 870, 11} {
		id, in, out := uint32(i+2), uint16(10*(i+2)+1), uint16(10*(i+2)+2)
		h := ioamservice.Hop{Hop: i + 1, NodeID: &id, Ingress: &in, Egress: &out, Transit: times(transit * time.Microsecond), Link: times(time.Duration(60+20*i) * time.Microsecond)}
		if i == 3 {
			h.Egress, h.Link = nil, nil
		}
		p.Hops = append(p.Hops, h)
	}
	return ioamservice.Paths{Paths: []ioamservice.Path{p}}, nil
}

func thresholds() verdict.Thresholds {
	cfg := config.Default().Why
	return verdict.ThresholdsOf(&cfg)
}

func places() (all []verdict.Place) {
	for i, iface := range []string{"eth0", "eth1"} {
		for _, d := range []flow.Direction{flow.Ingress, flow.Egress} {
			all = append(all, verdict.Place{Iface: iface, IfIndex: uint32(i + 2), Direction: d, Since: time.Now().Add(-2 * past.Length)})
		}
	}
	return all
}

// status is that of an agent that does well.
func status(server *api.Server) obs.Status {
	now := time.Now()
	s := obs.Status{
		Version: "0.1.0", API: server.Stats(), Host: "alpha", PID: 1234, Probe: "ebpf", Started: now.Add(-2 * past.Length), Now: now,
		Table:   obs.Table{MaxEntries: 262144, Entries: 812, MemoryBytes: 23 << 20, Live: 640},
		Drain:   obs.Drain{Count: 720, Deltas: 32100, Records: 32000, Last: 3 * time.Millisecond, Interval: 10 * time.Second},
		History: &obs.History{Path: "/var/lib/waymark/history", Bytes: 212 << 20, Size: 1 << 30, Files: 31, Records: 5_100_000, Oldest: now.Add(-50 * time.Hour), Reach: 4 * 86400},
		Exporters: []obs.Exporter{
			{Name: "ipfix", Target: "udp 192.0.2.50:4739", QueueSize: 65536, Exported: 31800},
			{Name: "jsonl", Target: "/var/log/waymark.jsonl", QueueSize: 65536, Exported: 31650, Queued: 12},
		},
	}
	s.Memory.Shares = []obs.MemoryShare{
		{Name: "flow table", Key: "flow.max_entries", Bytes: 24 << 20, Count: 262144}, {Name: "history", Key: "api.history", Bytes: 35 << 20, Count: 131072},
	}
	for i, iface := range []string{"eth0", "eth1"} {
		for _, direction := range []string{"ingress", "egress"} {
			s.Hooks = append(s.Hooks, obs.Hook{Iface: iface, IfIndex: uint32(i + 2), Direction: direction, Mode: "tcx", State: "attached"})
			s.Interfaces = append(s.Interfaces, obs.Interface{Iface: iface, Direction: direction, Packets: 812_345, Frames: 812_345, IfacePackets: 812_345, Coverage: 1})
		}
	}
	obs.FillLists(&s)
	return s
}

// topology is a graph as an agent answers it, of a host with two namespaces behind a bridge.
//
//go:embed testdata/topology.json
var topology json.RawMessage

// gatePages are the pages of a gate with two rules and a ban, and of what doctor finds here.
func gatePages() []api.Page {
	rules := gate.Rules{
		Rules: []gate.Rule{
			{ID: 3, Text: "accept tcp dst port 22 src net 2001:db8:1::/48", Counts: gate.Counts{Packets: 8120, Bytes: 1 << 20}},
			{ID: 7, Text: "drop src 203.0.113.0/24", Counts: gate.Counts{Packets: 900, Bytes: 39600, Dropped: 900, DroppedBytes: 39600}, PacketRate: 2.5},
		},
		Sets: []gate.Set{{Name: "bad", Members: 4120}}, Passed: gate.Counts{Packets: 9_580_000},
	}
	ban := gate.Ban{Prefix: netip.MustParsePrefix("203.0.113.66/32"), Since: time.Now().Add(-time.Hour / 2), By: gate.ByOperator, Reason: "tries ports", Dropped: 120}
	return []api.Page{
		{Path: gate.RulesPath, Get: func() (any, error) { return rules, nil }},
		{Path: "/api/v1/topology", Get: func() (any, error) { return topology, nil }},
		{Path: api.DoctorPath, Get: func() (any, error) { return running.Examined{Checks: kernel.Examine()}, nil }},
		{Path: "/api/v1/paths", Get: pathsPage},
		{Path: gate.BansPath, Get: func() (any, error) { return gate.Bans{Bans: []gate.Ban{ban}, Max: 65536}, nil }},
	}
}
