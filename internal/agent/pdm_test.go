package agent

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
	pdmservice "github.com/waymark-net/waymark/internal/inband/pdm/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/internal/lab/wire"
)

// between reports whether a measured time lies between two truths, give or take 5 %: on a busy machine a client and a
// server also wait for a processor, which may count for the server, for the network, or for neither.
func between(got, least, most time.Duration) bool { return got >= least*95/100 && got <= most*105/100 }

// TestDelays: a server that waits 50 ms, behind a path of 20 ms there and back,
// is distinguished from it.
func TestDelays(t *testing.T) {
	const think, oneWay = 50 * time.Millisecond, 10 * time.Millisecond
	l, _ := newPath(t, wire.Config{AB: wire.Direction{Delay: oneWay}, BA: wire.Direction{Delay: oneWay}})
	alpha, beta := l.Host("alpha"), l.Host("beta")
	cfg, path := agentConfig(t, "ebpf", alpha, beta)
	pdmservice.Section.Edit(&cfg).Policies = []pdmservice.PolicyConfig{{To: "2001:db8::/32", Proto: "any", For: time.Hour, Interface: "*"}}
	a := start(t, cfg)

	latency := map[uint8]time.Duration{} // as the client saw it
	for network, proto := range map[string]uint8{"tcp": 6, "udp": 17} {
		service, err := traffic.Serve(t.Context(), beta, traffic.ServiceConfig{
			Network: network, Listen: netip.AddrPortFrom(beta.Addr6(), 8080), Think: think,
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := traffic.Request(within(t, time.Minute), alpha, traffic.RequestConfig{
			Network: network, To: service.Addr(), Clients: 2, Requests: 20, RequestSize: 100, ResponseSize: 200,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := service.Close(); err != nil {
			t.Fatal(err)
		}
		latency[proto] = r.Latencies.Median()
		t.Logf("%s: %d requests, the client saw a median of %v", network, r.Requests, r.Latencies.Median())
	}
	all := a.Status()
	status := pdmservice.StatusOf(&all)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if status == nil || status.Marked == 0 || status.Read == 0 {
		t.Fatalf("status of marking: %+v", status)
	}
	for _, proto := range []uint8{6, 17} {
		var server, wire inband.Histogram
		var lost int64
		for _, r := range readRecords(t, path) {
			if r.PDM == nil || r.Proto != proto || r.Netns != alpha.Netns || r.Direction != flow.Ingress {
				continue
			}
			s, n := r.PDM.Server.Histogram(), r.PDM.Network.Histogram()
			server.Merge(&s)
			wire.Merge(&n)
			lost += r.PDM.Lost
		}
		serverTime, networkTime := server.Quantile(0.5), wire.Quantile(0.5)
		t.Logf("proto %d: server %v of %d, network %v of %d", proto, serverTime, server.Count, networkTime, wire.Count)
		if !between(serverTime, think, latency[proto]-2*oneWay) || !between(networkTime, 2*oneWay, latency[proto]-think) || lost != 0 {
			t.Errorf("proto %d: server %v, network %v, lost %d; want %v, %v, 0", proto, serverTime, networkTime, lost, think, 2*oneWay)
		}
	}
}

// newPath is a pair of hosts with a wire between them, and goes with the test.
func newPath(t *testing.T, cfg wire.Config) (*lab.Lab, *wire.Relay) {
	t.Helper()
	l := labtest.New(t, lab.Config{Topology: "path"})
	relay, err := l.NewRelay(cfg, discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-relay.Ready():
	case err := <-ended:
		t.Fatalf("the wire: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the wire is not ready after a minute")
	}
	return l, relay
}
