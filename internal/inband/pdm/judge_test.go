package pdm

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/marktest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/internal/lab/wire"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/wire/pdm"
)

// judged is a packet as tshark reads it.
type judged struct {
	local, remote string // address and port
	option        pdm.Option
}

// tshark reads the packets with PDM from one host, and fails on every one that
// it warns of: a checksum that is wrong, an option that cannot be.
func tshark(t *testing.T, path string, from netip.Addr) (rows []judged) {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: see scripts/setup")
	}
	fields := []string{
		"_ws.expert.severity", "_ws.expert.group", "ipv6.src", "ipv6.dst", "tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport",
		"ipv6.opt.pdm.psn_this_pkt", "ipv6.opt.pdm.psn_last_recv",
		"ipv6.opt.pdm.delta_last_recv", "ipv6.opt.pdm.delta_last_sent", "ipv6.opt.pdm.scale_dtlr", "ipv6.opt.pdm.scale_dtls",
		"icmpv6.echo.identifier",
	}
	args := []string{
		"-r", path, "-n", "-T", "fields", "-E", "separator=;", "-E", "occurrence=a",
		"-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-o", "tcp.analyze_sequence_numbers:FALSE",
		"-Y", "ipv6.src == " + from.String(),
	}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	out, err := exec.Command("tshark", args...).Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	// Not what TCP did, a D-SACK for one, but how the packet is made (epan/proto.h: PI_WARN, PI_SEQUENCE, PI_CHECKSUM).
	// A wrong checksum is an error. tshark warns of 0xffff, which Linux writes for 0, also in TCP: one packet in 65,536.
	const warning, sequence, checksum = 0x600000, "33554432", "16777216"
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ";")
		if len(f) != len(fields) {
			t.Fatalf("tshark says %q", line)
		}
		groups := strings.Split(f[1], ",")
		for i, severity := range strings.Split(f[0], ",") {
			if n, _ := strconv.ParseUint(severity, 0, 32); n >= warning && groups[i] != sequence && (n > warning || groups[i] != checksum) {
				t.Errorf("tshark warns: %s", line)
			}
		}
		if f[8] == "" {
			continue
		}
		number := func(i int) (n uint64) {
			n, err := strconv.ParseUint(f[i], 0, 16)
			if err != nil {
				t.Fatalf("tshark says %q for %s", f[i], fields[i])
			}
			return n
		}
		rows = append(rows, judged{
			local: f[2] + " " + f[4] + f[6] + id(f[14]), remote: f[3] + " " + f[5] + f[7],
			option: pdm.Option{
				PSNTP: uint16(number(8)), PSNLR: uint16(number(9)), DeltaTLR: uint16(number(10)), DeltaTLS: uint16(number(11)),
				ScaleDTLR: uint8(number(12)), ScaleDTLS: uint8(number(13)),
			},
		})
	}
	return rows
}

func id(s string) string {
	if s == "" {
		return ""
	}
	n, _ := strconv.ParseUint(s, 0, 16)
	return strconv.FormatUint(n, 10)
}

// tshark decodes every marked packet without a warning, finds every checksum
// right, and reads what the agent says that it sent.
func TestTsharkReadsWhatWasSent(t *testing.T) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 1500})
	if err := l.SetOffloads(allOffloads, false); err != nil {
		t.Fatal(err)
	}
	cfg := unlimited()
	cfg.Packets, cfg.Raw = true, 1<<20
	a, b := mark(t, l.Host("alpha"), cfg, headroom.Interface), mark(t, l.Host("beta"), cfg, headroom.Interface)
	sent := map[judged]int{}
	var events atomic.Uint64
	ctx, cancel := context.WithCancel(t.Context())
	streamed := make(chan error, 1)
	go func() {
		streamed <- a.marker.Stream(ctx, func(e *Event) {
			if e.Direction != flow.Egress {
				return
			}
			remote := ""
			if e.Proto != unix.IPPROTO_ICMPV6 {
				remote = fmt.Sprint(e.Remote.Port())
			}
			sent[judged{
				local:  fmt.Sprintf("%s %d", e.Local.Addr(), e.Local.Port()),
				remote: fmt.Sprintf("%s %s", e.Remote.Addr(), remote), option: e.Option,
			}]++
			events.Add(1)
		})
	}()
	path, stop := marktest.Record(t, b.Host)
	for _, way := range [][2]*lab.Host{{a.Host, b.Host}, {b.Host, a.Host}} {
		to := netip.AddrPortFrom(way[1].Addr6(), 0)
		if _, err := traffic.Bulk(t.Context(), way[0], way[1], traffic.BulkConfig{To: to, Bytes: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		if _, err := traffic.Datagrams(t.Context(), way[0], way[1], traffic.DatagramConfig{To: to, Count: 100, Size: 700}); err != nil {
			t.Fatal(err)
		}
		if _, err := traffic.Echo(t.Context(), way[0], traffic.EchoConfig{To: way[1].Addr6(), Count: 5, Size: 56}); err != nil {
			t.Fatal(err)
		}
	}
	a.whole, b.whole = false, false
	a.settle(t)
	b.settle(t)
	stop()
	s, err := a.marker.Stats()
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "all events", func() bool { return events.Load()+s.EventsLost >= s.Marked })
	cancel()
	if err := <-streamed; err != nil {
		t.Fatal(err)
	}
	if s.EventsLost > 0 {
		t.Fatalf("%d events were lost", s.EventsLost)
	}
	if events.Load() != s.Marked {
		t.Errorf("%d events of %d marked packets", events.Load(), s.Marked)
	}
	read := tshark(t, path, a.Host.Addr6())
	for _, r := range read {
		if sent[r]--; sent[r] < 0 {
			t.Errorf("tshark read what was not sent: %+v", r)
		}
	}
	for r, n := range sent {
		if n > 0 {
			t.Errorf("tshark did not read: %+v", r)
		}
	}
	t.Logf("%d packets", len(read))
}

// A server that waits 50 ms behind a path of 20 ms: what is measured is that.
func TestMeasuredDelays(t *testing.T) {
	const think, oneWay = 50 * time.Millisecond, 10 * time.Millisecond
	for _, network := range []string{"tcp", "udp"} {
		t.Run(network, func(t *testing.T) {
			l := datapathtest.NewLab(t, lab.Config{Topology: "path", MTU: 1500})
			cfg := wire.Default()
			cfg.AB.Delay, cfg.BA.Delay = oneWay, oneWay
			relay(t, l, cfg)
			a, b := mark(t, l.Host("alpha"), unlimited(), headroom.Interface), mark(t, l.Host("beta"), unlimited(), headroom.Interface)
			service, err := traffic.Serve(t.Context(), b.Host, traffic.ServiceConfig{
				Network: network, Listen: netip.AddrPortFrom(b.Addr6(), 7000), Think: think,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer service.Close()
			r, err := traffic.Request(t.Context(), a.Host, traffic.RequestConfig{
				Network: network, To: service.Addr(), Clients: 2, Requests: 20, RequestSize: 200, ResponseSize: 1000,
			})
			if err != nil {
				t.Fatal(err)
			}
			a.drain(t)
			b.drain(t)
			client, server := a.reported(flow.Ingress), b.reported(flow.Ingress)
			truth := service.Thought()
			path := r.Latencies.Median() - truth.Median()
			t.Logf("truth: server %v, path %v; measured at the client: server %v of %d, network %v of %d; at the server: network %v of %d",
				truth.Median(), path, client.Server.Quantile(0.5), client.Server.Count, client.Network.Quantile(0.5), client.Network.Count,
				server.Network.Quantile(0.5), server.Network.Count)
			// What left without a mark tells nothing: until the hosts know that marks arrive, and what is sent again.
			unmarked := uint64(0)
			for _, h := range []*markingHost{a, b} {
				for _, n := range h.unmarked() {
					unmarked += n
				}
			}
			if n := min(client.Server.Count, client.Network.Count); n < 20 || n+unmarked < 38 {
				t.Errorf("of 40 requests %d reported the server's delay and %d the network's; %d packets had no mark", client.Server.Count, client.Network.Count, unmarked)
			}
			// A client also waits for its processor, which is no part of the network, and a server before it reads a request.
			within(t, "server delay", client.Server.Quantile(0.5), truth.Median(), r.Latencies.Median()-20*time.Millisecond)
			within(t, "network round trip", client.Network.Quantile(0.5), min(path, 20*time.Millisecond), path)
			if client.Lost != 0 || client.Duplicates != 0 || client.Suspicious != 0 || server.Lost != 0 || server.Suspicious != 0 {
				t.Errorf("reported at the client %+v, at the server %+v", client, server)
			}
		})
	}
}

// within wants what was measured to lie between two truths, give or take 5 %.
func within(t *testing.T, what string, got, least, most time.Duration) {
	t.Helper()
	if low, high := least*95/100, most*105/100; got < low || got > high {
		t.Errorf("%s %v, the truth is %v to %v", what, got, least, most)
	}
}

// relay moves the frames of a path until the test ends.
func relay(t *testing.T, l *lab.Lab, cfg wire.Config) *wire.Relay {
	t.Helper()
	r, err := l.NewRelay(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-r.Ready():
	case err := <-ended:
		t.Fatal(err)
	}
	return r
}
