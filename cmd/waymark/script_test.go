package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/waymark-net/waymark/internal/analyze/verbs"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
	pdmservice "github.com/waymark-net/waymark/internal/inband/pdm/service"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/test/golden"
	"github.com/waymark-net/waymark/test/packet"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"waymark":         main,
		"waymark-analyze": func() { os.Exit(verbs.Execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// Each file of testdata/script is a session at a shell.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *golden.Update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("WAYMARK_API_SOCKET", filepath.Join(env.WorkDir, "agent.sock"))
			env.Setenv("TZ", "UTC")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"agent":   startAgent,
			"exits":   exits,
			"capture": writeCapture,
		},
	})
}

// exits runs a command and compares its exit code: exits 2 waymark flows --by x.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// startAgent serves the API over known flows on the socket of the script. With
// live, an interval ends every 300 ms: a follower who is late for two in a row is dropped.
//
// With marked there are marked flows besides; with silent, lonely or over none, for a reason.
func startAgent(ts *testscript.TestScript, neg bool, args []string) {
	live := slices.Contains(args, "live")
	if neg || len(args) > 2 {
		ts.Fatalf("usage: agent [live] [marked|silent|lonely|over]")
	}
	history := store.New(store.Default())
	fillInterval(history, 0)
	fillInterval(history, 1)
	status := knownStatus
	for how, pdm := range knownPDM {
		if slices.Contains(args, how) {
			status = func() obs.Status {
				s := knownStatus()
				s.Sections = []obs.Section{{Name: "pdm", Value: &pdm}}
				return s
			}
		}
	}
	if slices.Contains(args, "marked") {
		fillMarked(history)
	}
	server := api.New(api.Config{Socket: ts.Getenv("WAYMARK_API_SOCKET")}, api.Deps{
		Origin:  flow.Origin{Host: "alpha", Sampling: 1},
		History: history, Status: status, Ready: func() error { return nil },
		Configuration: func() (api.Configuration, error) {
			return api.Configuration{YAML: "interfaces: [eth0]\napi: {socket: " + ts.Getenv("WAYMARK_API_SOCKET") + "}\n"}, nil
		},
	})
	ts.Check(server.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	if live {
		go func() {
			tick := time.NewTicker(300 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				fillInterval(history, 0)
				<-tick.C
			}
		}()
	}
	ts.Defer(func() {
		cancel()
		if err := <-done; err != nil {
			ts.Logf("agent: %v", err)
		}
	})
}

// writeCapture makes a capture file: a TCP connection whose handshake takes 12 ms,
// and a question over UDP.
func writeCapture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: capture FILE")
	}
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	w := pcapgo.NewWriterNanos(f)
	ts.Check(w.WriteFileHeader(65536, layers.LinkTypeEthernet))
	const syn, ack, psh = 0x02, 0x10, 0x08
	there := packet.Eth().IPv4("192.0.2.1", "198.51.100.2").TCP(50000, 443)
	back := packet.Eth().IPv4("198.51.100.2", "192.0.2.1").TCP(443, 50000)
	for _, p := range []struct {
		at    time.Duration
		frame packet.Builder
	}{
		{0, there.Flags(syn)},
		{8 * time.Millisecond, back.Flags(syn | ack)},
		{12 * time.Millisecond, there.Flags(ack)},
		{13 * time.Millisecond, there.Flags(psh | ack).Payload(500)},
		{30 * time.Millisecond, back.Flags(psh | ack).Payload(1400)},
		{time.Second, packet.Eth().IPv6("2001:db8::1", "2001:db8::53").UDP(40000, 53).Payload(40)},
	} {
		frame := p.frame.Bytes()
		info := gopacket.CaptureInfo{Timestamp: scriptStart.Add(p.at), CaptureLength: len(frame), Length: len(frame)}
		ts.Check(w.WritePacket(info, frame))
	}
	ts.Check(f.Close())
}

var scriptStart = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)

// fillInterval ends the nth interval of ten seconds; all are alike.
func fillInterval(s *store.Store, n int) {
	web := flow.Record{
		Iface: "eth0", IfIndex: 2, Direction: flow.Egress, Family: 6, Proto: 6, SrcPort: 50000, DstPort: 443,
		Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("2001:db8:1::2"),
		TCPFlags: 0x1b, TTLMin: 64, TTLMax: 64, Counters: flow.Counters{Packets: 1200, Bytes: 1_500_000, PayloadBytes: 1_400_000, WireBytes: 1_516_800},
		First: scriptStart, Last: scriptStart.Add(8 * time.Second),
		RTT: flow.RTT{Responder: 8 * time.Millisecond, Initiator: 210 * time.Microsecond},
	}
	back := web
	back.Src, back.Dst, back.SrcPort, back.DstPort, back.Direction = web.Dst, web.Src, 443, 50000, flow.Ingress
	back.Packets, back.Bytes, back.PayloadBytes, back.WireBytes, back.RTT = 700, 60_000, 0, 69_800, flow.RTT{}
	name := flow.Record{
		Iface: "eth0", IfIndex: 2, Direction: flow.Egress, Family: 4, Proto: 17, SrcPort: 40000, DstPort: 53,
		Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.53"),
		Counters: flow.Counters{Packets: 1, Bytes: 60, PayloadBytes: 32, WireBytes: 74}, First: scriptStart.Add(time.Second), Last: scriptStart.Add(time.Second),
	}
	iv := s.Begin(scriptStart.Add(time.Duration(n) * 10 * time.Second))
	for _, r := range []flow.Record{web, back, name} {
		iv.Add(&r)
	}
	iv.End(scriptStart.Add(time.Duration(n+1) * 10 * time.Second))
}

// fillMarked ends an interval with sessions of all kinds with three peers.
func fillMarked(s *store.Store) {
	ms := func(all ...float64) flow.Delays {
		var h inband.Histogram
		for _, v := range all {
			h.Add(uint64(v * float64(time.Millisecond)))
		}
		return flow.DelaysOf(&h)
	}
	iv := s.Begin(scriptStart.Add(20 * time.Second))
	for i, reported := range []struct {
		peer         string
		port, local  uint16
		sent         uint64
		answered     flow.PDM
		packetsTotal uint64
	}{
		{"2001:db8:1::2", 443, 50000, 12, flow.PDM{Received: 9, Server: ms(40, 41, 41, 42, 90), Network: ms(8, 8.1, 8.2, 8.2, 9)}, 30},
		{"2001:db8:1::2", 443, 50001, 12, flow.PDM{Received: 9, Server: ms(1, 1, 2, 2), Network: ms(8, 8, 9, 400), Reordered: 2}, 20},
		{"2001:db8:2::3", 5432, 50002, 40, flow.PDM{Received: 90, Lost: 10, Server: ms(2, 2, 2, 700), Network: ms(80, 81, 82, 83), Duplicates: 1}, 110},
		{"2001:db8:2::3", 33000, 443, 5, flow.PDM{Received: 5, Server: ms(5000), Network: ms(82)}, 10},
		{"2001:db8:3::4", 25, 50003, 7, flow.PDM{}, 10},
	} {
		in := flow.Record{
			Iface: "eth0", IfIndex: 2, Direction: flow.Ingress, Family: 6, Proto: 6, SrcPort: reported.port, DstPort: reported.local,
			Src: netip.MustParseAddr(reported.peer), Dst: netip.MustParseAddr("2001:db8::1"), TTLMin: 60, TTLMax: 60,
			Counters: flow.Counters{Packets: reported.packetsTotal, Bytes: 100 * reported.packetsTotal}, First: scriptStart, Last: scriptStart.Add(time.Duration(i) * time.Second),
		}
		out := in
		out.Direction, out.Src, out.Dst, out.SrcPort, out.DstPort = flow.Egress, in.Dst, in.Src, in.DstPort, in.SrcPort
		out.PDM = &flow.PDM{Sent: reported.sent}
		if reported.answered.Received > 0 {
			in.PDM = &reported.answered
		}
		iv.Add(&out)
		iv.Add(&in)
	}
	iv.End(scriptStart.Add(30 * time.Second))
}

// knownPDM are states of marking.
var knownPDM = map[string]pdmservice.Status{
	"marked": {
		Mode: "burst", Policies: knownPolicies, Marked: 76, Read: 113, Stripped: 113, MaxEntries: 65536, Entries: 5, MemoryBytes: 13_107_200,
		Created: 70_000, Expired: 60_000, Evicted: 9_000, Refused: 12, Alerts: 3, Fallbacks: 4, Blocked: 1, Narrowed: 2,
		Passed: []pdmservice.Passed{{Iface: "eth0", Direction: "egress", Reason: "mtu", Packets: 3}, {Iface: "eth0", Direction: "ingress", Reason: "no_state", Packets: 1}},
	},
	"silent": {
		Mode: "burst", Policies: knownPolicies, MaxEntries: 65536,
		Passed: []pdmservice.Passed{{Iface: "eth0", Direction: "egress", Reason: "esp", Packets: 40}, {Iface: "eth1", Direction: "egress", Reason: "esp", Packets: 2}, {Iface: "eth0", Direction: "egress", Reason: "mtu", Packets: 41}},
	},
	"lonely": {
		Mode: "packet", Policies: knownPolicies, Marked: 1234, MaxEntries: 65536,
		Reduced: []pdmservice.Reduction{
			{Iface: "eth0", Setting: "IPv6 MTU", From: 1500, To: 1484},
			{Iface: "eth0", Setting: "gso_max_segs", From: 65535, To: 1},
			{Iface: "eth1", Netns: "blue", Setting: "route MTU", Route: "2001:db8::/32", To: 1484},
		},
	},
	"over": {Mode: "packet", Policies: []pdmservice.Policy{{Text: "tcp to ::/0", Until: scriptStart}}, Marked: 5, Read: 5, MaxEntries: 65536},
}

var knownPolicies = []pdmservice.Policy{
	{Text: "tcp to 2001:db8::/32 port 443", Until: scriptStart.Add(2*time.Hour + 31*time.Minute)},
	{Text: "udp to 2001:db8:7::/48", Until: scriptStart},
}

func knownStatus() obs.Status {
	return obs.Status{
		Version: "1.2.3", Host: "alpha", PID: 4711, Started: scriptStart, Now: scriptStart.Add(2 * time.Hour), Probe: "ebpf",
		Hooks: []obs.Hook{
			{Iface: "eth0", IfIndex: 2, Direction: "ingress", Mode: "tcx", State: "attached"},
			{Iface: "eth0", IfIndex: 2, Direction: "egress", Mode: "tcx", State: "attached", Warning: "behind end_chain (id 9)"},
			{Iface: "eth1", Netns: "blue", Direction: "ingress", State: "failed", Error: "no such device"},
		},
		Topology: &obs.Topology{Versions: 3, Oldest: scriptStart, Newest: scriptStart.Add(time.Hour), LLDP: "received"},
		Access: &obs.Access{Socket: "/run/waymark/agent.sock", Group: "waymark", Console: &obs.Console{
			Listen: "192.0.2.7:8474", TLS: true, Tokens: 2, Proxies: []string{"192.0.2.8/32"}, Sessions: 1,
			Certificates: []obs.Certificate{{Use: "console", Name: "waymark.example", Ends: scriptStart.AddDate(1, 0, 0)}, {Use: "clients", Name: "Test CA", Ends: scriptStart.AddDate(9, 0, 0)}},
			Refused:      map[string]uint64{"credentials": 3},
		}},
		Table: obs.Table{MaxEntries: 524288, Entries: 52429, MemoryBytes: 67_108_864, Evicted: 1234, Unattributed: 5, Live: 60000},
		Drain: obs.Drain{Count: 720, Deltas: 1_500_000, Records: 90_000, Last: 12 * time.Millisecond, Grace: 7 * time.Millisecond, Interval: 10 * time.Second},
		Interfaces: []obs.Interface{
			{Iface: "eth0", Direction: "ingress", Packets: 999_000, Frames: 99_000, IfacePackets: 1_000_000, Coverage: 1, Uncounted: []obs.Reason{{Reason: "arp", Packets: 900}, {Reason: "malformed", Packets: 100}}},
			{Iface: "eth0", Direction: "egress", Packets: 999_999, Frames: 999_999, IfacePackets: 1_000_000, Coverage: 0.999999},
		},
		API:       obs.API{Connections: 1, Dropped: 3},
		Totals:    []obs.Total{{Iface: "eth0", Direction: "ingress", Protocol: "tcp", Counters: flow.Counters{Packets: 900_000, Bytes: 1_200_000_000, WireBytes: 1_212_600_000}}},
		Exporters: []obs.Exporter{{Name: "ipfix", Target: "udp://[::1]:4739", Queued: 3, QueueSize: 65536, Exported: 90_000, Retries: 2, Lost: []obs.Loss{{Reason: "queue_full", Count: 7}}, LastError: "connection refused"}},
		Losses:    []obs.Loss{{Where: "exporter ipfix", Reason: "queue_full", Count: 7}},
		Programs:  []obs.Program{{Name: "waymark_ingress", ID: 17, RunCount: 1_000_000, RunTime: 60 * time.Millisecond}},
	}
}

// The reference is the same each time and the same everywhere.
func TestDocsAreReproducible(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	root := newReferenceCommand()
	if err := generateDocs(root, first); err != nil {
		t.Fatal(err)
	}
	again := newReferenceCommand()
	if err := generateDocs(again, second); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("diff", "-r", first, second).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(first, "man", "waymark-flows.1")); err != nil {
		t.Error(err)
	}
}
