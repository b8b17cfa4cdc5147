package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
)

func init() { datapath.ReadOnce() }

// newLab is a pair of hosts that goes with the test.
func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	return labtest.New(t, lab.Config{Topology: "pair"})
}

// running is an agent under test.
type running struct {
	*Agent
	stop    func() error
	reports *reports
}

// reports are the reasons that Deps.Ready was called with; "": ready.
type reports struct {
	mu      sync.Mutex
	reasons []string
}

func (r *reports) add(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason == nil {
		reason = errors.New("")
	}
	r.reasons = append(r.reasons, reason.Error())
}

func (r *reports) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.reasons)
}

// start runs an agent until stop, or the end of the test.
func start(t *testing.T, cfg config.Config) *running {
	t.Helper()
	return startAt(t, cfg, time.Now)
}

// startAt is start with a clock of the test's own.
func startAt(t *testing.T, cfg config.Config, clock flow.Clock) *running {
	t.Helper()
	ready := make(chan struct{})
	once := sync.OnceFunc(func() { close(ready) })
	reports := &reports{}
	var log io.Writer = t.Output()
	a, err := New(cfg, Deps{
		Log: slog.New(slog.NewTextHandler(log, nil)), Clock: clock,
		Ready: func(reason error) {
			reports.add(reason)
			once()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		t.Fatalf("the agent ended before it was ready: %v", err)
	case <-time.After(time.Minute): // an emulated processor takes ten seconds to verify the programs
		cancel()
		t.Fatal("the agent was not ready within a minute")
	}
	stopped := false
	r := &running{Agent: a, reports: reports, stop: func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Minute):
			return fmt.Errorf("the agent did not end within a minute")
		}
	}}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// agentConfig counts on all interfaces of a lab's host and writes to a file.
func agentConfig(t *testing.T, probe string, hosts ...*lab.Host) (cfg config.Config, records string) {
	t.Helper()
	records = filepath.Join(t.TempDir(), "flows.jsonl")
	cfg = config.Default()
	cfg.Interfaces = []config.Interface{{Match: "to-*"}}
	cfg.Probe = probe
	for _, h := range hosts {
		cfg.Netns = append(cfg.Netns, h.Netns)
	}
	cfg.Flow.MaxEntries = 4096
	cfg.Flow.ScanInterval = 50 * time.Millisecond
	cfg.API.Socket = filepath.Join(t.TempDir(), "agent.sock")
	cfg.History.Path = t.TempDir()
	cfg.Export = []config.Export{{JSONL: &config.JSONL{Path: records, Queue: 65536}}}
	return cfg, records
}

func readRecords(t *testing.T, path string) []flow.Record {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []flow.Record
	for s := bufio.NewScanner(f); s.Scan(); {
		_, r, err := jsonl.Decode(s.Bytes())
		if err != nil {
			t.Fatalf("%v: %s", err, s.Text())
		}
		out = append(out, r)
	}
	return out
}

// TestTransfer: one TCP transfer, seen on both hosts, in both directions, by
// both probes: payload exact, handshake measured, nothing uncovered.
func TestTransfer(t *testing.T) {
	const size = 5_000_000
	for _, probe := range []string{"ebpf", "afpacket"} {
		t.Run(probe, func(t *testing.T) {
			p := newPair(t, probe)
			alpha, beta := p.alpha, p.beta
			sent := p.transfer(t, 5000, size)
			payload := map[string]uint64{}
			var rtt flow.RTT
			for _, r := range p.records(t) {
				if r.Proto != 6 {
					continue
				}
				if r.DstPort == 5000 {
					payload[r.Netns+" "+r.Direction.String()] += r.PayloadBytes
				}
				if r.Netns == alpha.Netns && r.RTT.Responder > 0 {
					rtt = r.RTT
				}
			}
			for _, at := range []string{alpha.Netns + " egress", beta.Netns + " ingress"} {
				if payload[at] != sent.Sender.BytesSent {
					t.Errorf("%s: %d bytes of payload, want %d", at, payload[at], sent.Sender.BytesSent)
				}
			}
			if rtt.Responder <= 0 || rtt.Responder > time.Second {
				t.Errorf("handshake round trip %v", rtt)
			}
		})
	}
}

// pair is two hosts with one agent on both.
type pair struct {
	lab         *lab.Lab
	alpha, beta *lab.Host
	agent       *running
	path        string // of the agent's records
}

func newPair(t *testing.T, probe string) *pair {
	t.Helper()
	p := &pair{lab: newLab(t)}
	p.alpha, p.beta = p.lab.Host("alpha"), p.lab.Host("beta")
	var cfg config.Config
	cfg, p.path = agentConfig(t, probe, p.alpha, p.beta)
	p.agent = start(t, cfg)
	return p
}

// transfer sends bytes from alpha to a port of beta by TCP; port 0: to any.
func (p *pair) transfer(t *testing.T, port uint16, bytes int64) traffic.BulkResult {
	t.Helper()
	r, err := traffic.Bulk(within(t, time.Minute), p.alpha, p.beta, traffic.BulkConfig{
		To: netip.AddrPortFrom(p.beta.Addr6(), port), Bytes: bytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// records ends the agent when it has counted everything, and returns all that it wrote.
func (p *pair) records(t *testing.T) []flow.Record {
	t.Helper()
	waitCovered(t, p.agent)
	if err := p.agent.stop(); err != nil {
		t.Fatal(err)
	}
	return readRecords(t, p.path)
}

// waitCovered polls until the probe saw every packet and byte that every
// interface counted, with the counters at rest.
func waitCovered(t *testing.T, a *running) {
	t.Helper()
	await.Success(t, func() error {
		var off []obs.Interface
		list := a.Status().Interfaces
		for _, c := range list {
			atRest := c.IfaceBytes-c.IfaceBytesMin < 1000 // router solicitations and the like
			if c.Coverage != 1 || !atRest || c.IfacePackets == 0 {
				off = append(off, c)
			}
		}
		if len(list) == 0 || len(off) > 0 {
			return fmt.Errorf("coverage of %d interfaces: %+v", len(list), off)
		}
		return nil
	})
}

var discard = slog.New(slog.DiscardHandler)

// childConfig counts on the interfaces of the namespace it runs in.
func childConfig(probe string) config.Config {
	cfg := config.Default()
	cfg.Interfaces = []config.Interface{{Match: "to-*"}}
	cfg.Probe = probe
	cfg.Flow.MaxEntries = 4096
	cfg.API.Socket = filepath.Join(os.TempDir(), fmt.Sprintf("waymark-test-%d.sock", os.Getpid()))
	cfg.History.Use = "never"
	return cfg
}
