package prometheus_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	balance "github.com/waymark-net/waymark/internal/balance/service"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/flow"
	forward "github.com/waymark-net/waymark/internal/forward/service"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/inband"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	ioam "github.com/waymark-net/waymark/internal/inband/ioam/service"
	pdm "github.com/waymark-net/waymark/internal/inband/pdm/service"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/stage/list"
	"github.com/waymark-net/waymark/test/golden"
	wireioam "github.com/waymark-net/waymark/wire/ioam"
)

// status has something in every field.
func status() obs.Status {
	return obs.Status{
		Version: "1.2.3", Host: "gw", PID: 42, Probe: "ebpf",
		Started: time.Unix(1700000000, 250_000_000), Now: time.Unix(1700003600, 0),
		Hooks: []obs.Hook{
			{Iface: "eth0", IfIndex: 2, Direction: "ingress", Mode: "tcx", State: "attached"},
			{Iface: "eth0", IfIndex: 2, Direction: "ingress", Mode: "xdp", State: "attached"},
			{Iface: "eth0", IfIndex: 2, Direction: "egress", Mode: "tcx", State: "attached", Warning: "behind end_chain (id 9)"},
			{Iface: "veth1", Netns: "blue", IfIndex: 2, Direction: "ingress", Mode: "clsact", State: "failed", Error: "no memory"},
			{Iface: "eth9", Direction: "ingress", State: "waiting"},
		},
		Table: obs.Table{
			MaxEntries: 524288, Entries: 1000, MemoryBytes: 1 << 26,
			Evicted: 7, Unattributed: 3, CountsFull: 1, Live: 2000, Shed: 9,
		},
		API: obs.API{Connections: 5, Evicted: 700, Followers: 3, Dropped: 2},
		Drain: obs.Drain{
			Count: 360, Deltas: 360000, Records: 4000, Errors: 1,
			Last: 12500 * time.Microsecond, Grace: 2 * time.Millisecond, Interval: 10 * time.Second,
		},
		Interfaces: []obs.Interface{
			{
				Iface: "eth0", Direction: "ingress",
				Frames: 90, FrameBytes: 90000, Packets: 100, WireBytes: 100000,
				IfacePacketsMin: 99, IfaceBytesMin: 99000, IfacePackets: 102, IfaceBytes: 101000,
				Uncounted: []obs.Reason{{Reason: "arp", Packets: 2, Frames: 2, Bytes: 120}}, Coverage: 1,
			},
			{Iface: "eth0", Direction: "egress", Coverage: 0.875},
		},
		Totals: []obs.Total{
			{Iface: "eth0", Direction: "ingress", Protocol: "tcp", Counters: flow.Counters{Packets: 80, Bytes: 70000, WireBytes: 71120}},
			{Iface: "eth0", Direction: "ingress", Protocol: "udp", Counters: flow.Counters{Packets: 20, Bytes: 5000, WireBytes: 5280}},
			{Iface: "veth1", Netns: "blue", Direction: "egress", Protocol: "icmpv6", Counters: flow.Counters{Packets: 1, Bytes: 104, WireBytes: 118}},
		},
		Exporters: []obs.Exporter{
			{Name: "jsonl", Target: "/var/log/flows.jsonl", Queued: 5, QueueSize: 65536, Exported: 4000},
			{
				Name: "ipfix", Target: "udp://192.0.2.77:4739", Queued: 65536, QueueSize: 65536, Exported: 100, Retries: 9,
				Lost:      []obs.Loss{{Where: "queue", Reason: "queue_full", Count: 11}, {Where: "output", Reason: "refused", Count: 12}},
				LastError: "connection refused",
			},
		},
		Losses: []obs.Loss{{Where: "kernel table", Reason: "ring_full", Count: 3}},
		Programs: []obs.Program{
			{Name: "flow_ingress", ID: 11, RunCount: 1000, RunTime: 25 * time.Microsecond},
			{Name: "flow_egress", ID: 12, RunCount: 10, RunTime: time.Microsecond},
		},
		Sections: []obs.Section{{Name: "pdm", Value: &pdm.Status{
			Mode: "burst",
			Policies: []pdm.Policy{
				{Text: "to 2001:db8::/32 proto tcp", Until: time.Unix(1700003601, 0)},
				{Text: "to 2001:db8:1::/48", Until: time.Unix(1700003600, 0)},
			},
			Marked: 500, Read: 400, Stripped: 390, MaxEntries: 65536, Entries: 77, MemoryBytes: 65536 * 200,
			Created: 70, Expired: 60, Evicted: 5, Refused: 6, Alerts: 2, DelaysLost: 8, EventsLost: 9, Drain: 3 * time.Millisecond,
			Passed: []pdm.Passed{{Iface: "eth0", Direction: "egress", Reason: "mtu", Packets: 11}},
			Reduced: []pdm.Reduction{
				{Iface: "eth0", Setting: "IPv6 MTU", From: 1500, To: 1484}, {Iface: "eth0", Setting: "gso_max_segs", From: 65535, To: 1},
			},
			Totals: []pdm.Total{
				{
					Iface: "eth0", Protocol: "tcp", Sent: 300, Received: 200, Lost: 4, Reordered: 3, Duplicates: 2, Suspicious: 1, Discarded: 5,
					Server: delays(20*time.Microsecond, 40*time.Millisecond, 41*time.Millisecond, 90*time.Second), Network: delays(8 * time.Millisecond),
				},
				{Iface: "veth1", Netns: "blue", Protocol: "udp", Sent: 200, Received: 200, Lost: -1},
			},
		}}, {Name: "forward", Value: &forward.Status{
			Interfaces: []forward.Interface{{Iface: "eth0", Forwarded: 20, Bytes: 2000, Passed: map[string]uint64{"fragment": 3}}},
		}}, {Name: "balance", Value: &balance.Status{
			Services: []balance.Service{{
				Name: "web", Other: map[string]uint64{"too_big": 2},
				Backends: []balance.Backend{{Address: "10.0.0.1", State: "up", Share: 0.75, Connections: 4, Opened: 5, Packets: 60, Bytes: 7000, Changes: 2}, {Address: "10.0.0.2", State: "down"}},
			}},
			Interfaces: []balance.Interface{{Iface: "eth0", Packets: map[string]uint64{"no_service": 8}}},
		}}, {Name: "gate", Value: &gate.Status{
			Detected: map[string]uint64{"banned": 2}, SYNCookies: map[string]uint64{"answered": 6}, Rules: gate.Rules{
				Rules:  []gate.Rule{{ID: 7, Text: "drop udp dst port 1900", Counts: gate.Counts{Packets: 5, Bytes: 500, Dropped: 4, DroppedBytes: 400}}},
				Passed: gate.Counts{Packets: 90}, NotIP: gate.Counts{Packets: 3}, Removed: gate.Counts{Dropped: 2}, Forgotten: 1,
			},
		}}, {Name: "ioam", Value: &ioam.Status{
			Written: 9, Completed: 8, Direct: ioam.DirectStatus{Every: 100, Rate: 100, Exported: 6, Limited: 594, Lost: 2, Unread: 1},
			Passed:  []ioam.Passed{{Iface: "eth0", Direction: "ingress", Reason: "namespace_unknown", Namespace: 77, Packets: 3}},
			Removed: 7, Unwrapped: 6, Proven: 5,
			Insertions: []ioam.Insertion{{Name: "to beta", Named: 40, Chosen: 20, Inserted: 19}},
			Paths: &ioam.PathStatus{
				Paths: 1, MaxPaths: 128, Changes: 2, Traces: 30, ReportsLost: 3, DelaysLost: 4, FlowsLost: 5, Edges: 6, EdgesLost: 7,
				Senders: []ioam.Edge{{
					Namespace: 123, Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("2001:db8::2"), Received: 100, Lost: 3, Reordered: 2, Duplicates: 1,
				}},
				List: []inbandioam.Path{{
					ID: 0x2844be90820f, Namespace: 123, Packets: 30,
					Hops: []inbandioam.Hop{
						{Hop: wireioam.Hop{Type: wireioam.HopLimitNodeID, NodeID: 2}, Transit: times(4*time.Microsecond, 5*time.Microsecond), Link: times(60 * time.Microsecond)},
						{Hop: wireioam.Hop{Type: wireioam.HopLimitNodeID, NodeID: 3}, Transit: times(time.Millisecond), Link: times(-time.Second), Relative: true},
						{Hop: wireioam.Hop{Type: wireioam.HopLimitNodeID, NodeID: 4}},
					},
				}},
			},
		}}},
	}
}

// times are times of a hop or link.
func times(all ...time.Duration) (m inbandioam.Measured) {
	m.All.Min, m.All.Max = int64(slices.Min(all)), int64(slices.Max(all))
	for _, d := range all {
		m.All.Count++
		m.All.Sum += int64(d)
		if d >= 0 {
			m.All.Buckets = append(m.All.Buckets, flow.DelayBucket{Index: uint8(inband.Bucket(uint64(d))), Count: 1})
		}
	}
	return m
}

func delays(all ...time.Duration) flow.Delays {
	var h inband.Histogram
	for _, d := range all {
		h.Add(uint64(d))
	}
	return flow.DelaysOf(&h)
}

func scrape(t *testing.T, status func() obs.Status) []byte {
	t.Helper()
	answer := httptest.NewRecorder()
	prometheus.Handler(status, list.Metrics(), slog.New(slog.DiscardHandler)).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	return answer.Body.Bytes()
}

// own keeps Waymark's metrics.
func own(page []byte) (lines []byte) {
	for line := range bytes.Lines(page) {
		if bytes.Contains(line, []byte("waymark_")) {
			lines = append(lines, line...)
		}
	}
	return lines
}

func TestPage(t *testing.T) {
	page := scrape(t, status)
	golden.Check(t, "testdata/metrics.txt", string(own(page)))
	for _, runtime := range []string{"go_goroutines ", "process_cpu_seconds_total "} {
		if !bytes.Contains(page, []byte("\n"+runtime)) {
			t.Errorf("%sis missing", runtime)
		}
	}
	if bytes.Contains(page, []byte("192.0.2.77")) {
		t.Error("an address is on the page")
	}
}

func TestPromlint(t *testing.T) {
	problems, err := promlint.New(bytes.NewReader(scrape(t, status))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	dirty := "# HELP waymark_things_total Things.\n# TYPE waymark_things_total gauge\nwaymark_things_total 1\n"
	if problems, err := promlint.New(strings.NewReader(dirty)).Lint(); err != nil || len(problems) == 0 {
		t.Errorf("the linter finds nothing in a gauge named as a counter: %v", err)
	}
}

// Every metric of the table has samples on the page, and every one is in the
// table with the labels that it has there.
func TestTable(t *testing.T) {
	sampleLine := regexp.MustCompile(`(?m)^(waymark_\w+)(?:\{(.*)\})? `)
	seen := map[string]bool{}
	histogram := regexp.MustCompile(`_seconds_(bucket|sum|count)$`)
	for _, m := range sampleLine.FindAllStringSubmatch(string(scrape(t, status)), -1) {
		m[1] = histogram.ReplaceAllString(m[1], "_seconds")
		var labels []string
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" { // of a histogram's bucket
				labels = append(labels, l[1])
			}
		}
		i := slices.IndexFunc(prometheus.Metrics(list.Metrics()), func(known prometheus.Metric) bool { return known.Name == m[1] })
		if i < 0 {
			t.Errorf("%s is not in the table", m[1])
			continue
		}
		want := slices.Sorted(slices.Values(prometheus.Metrics(list.Metrics())[i].Labels))
		if !slices.Equal(labels, want) {
			t.Errorf("%s has labels %q, want %q", m[1], labels, want)
		}
		seen[m[1]] = true
	}
	for _, m := range prometheus.Metrics(list.Metrics()) {
		if !seen[m.Name] {
			t.Errorf("%s is in the table and not on the page", m.Name)
		}
	}
}

// What comes twice, or is no UTF-8, must not cost the whole page.
func TestAwkwardStatus(t *testing.T) {
	page := string(scrape(t, func() obs.Status {
		s := status()
		s.Totals = append(s.Totals, s.Totals[0])
		s.Programs = append(s.Programs, s.Programs[0])
		marks := pdm.StatusOf(&s)
		marks.Totals = append(marks.Totals, marks.Totals[0])
		s.Hooks = append(s.Hooks, s.Hooks[0])
		s.Hooks[3].Iface = "a\xffb\"c"
		return s
	}))
	for _, want := range []string{
		`waymark_packets_total{direction="ingress",interface="eth0",netns="",protocol="tcp"} 160`,
		`waymark_pdm_sent_total{interface="eth0",netns="",protocol="tcp"} 600`,
		`waymark_pdm_server_delay_seconds_count{interface="eth0",netns="",protocol="tcp"} 8`,
		`waymark_program_runs_total{program="flow_ingress"} 2000`,
		`waymark_hook_attached{direction="ingress",interface="eth0",mode="tcx",netns=""} 1`,
		"interface=\"a\ufffdb\\\"c\"",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if page := string(scrape(t, func() obs.Status { return obs.Status{} })); !strings.Contains(page, "waymark_drains_total 0") {
		t.Error("the page of an empty status lacks its counters")
	}
}

func TestListenErrorsTellTheRemedy(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for listen, want := range map[string]string{
		busy.Addr().String(): "address already in use: set export.prometheus.listen to another port",
		"198.51.100.1:9474":  "to an address of this host",
		"nonsense":           "set export.prometheus.listen to host:port",
	} {
		err := prometheus.New(prometheus.Config{Listen: listen}, status, list.Metrics(), slog.New(slog.DiscardHandler)).Listen()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", listen, err, want)
		}
	}
}

func TestServer(t *testing.T) {
	s := prometheus.New(prometheus.Config{Listen: "127.0.0.1:0"}, status, list.Metrics(), slog.New(slog.DiscardHandler))
	s.Close() // before Listen: nothing to do
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	base := "http://" + s.Addr().String()
	for path, want := range map[string]int{"/metrics": 200, "/": 200, "/nothing": 404} {
		answer, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != want {
			t.Errorf("%s: %d %v: %s", path, answer.StatusCode, err, body)
		}
	}
	if answer, err := http.Post(base+"/metrics", "text/plain", nil); err != nil || answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("post: %v %v", answer, err)
	}

	// A scraper that does not read its answer must not hold up the end.
	stuck, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	fmt.Fprint(stuck, "GET /metrics HTTP/1.1\r\n")
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the server does not end")
	}
}

func BenchmarkScrape(b *testing.B) {
	h := prometheus.Handler(status, list.Metrics(), slog.New(slog.DiscardHandler))
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
	}
}
