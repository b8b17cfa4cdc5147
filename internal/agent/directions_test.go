package agent

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/query"
)

// newChain is a row of five hosts, three of which route, that goes with the test.
func newChain(t *testing.T) *lab.Lab {
	t.Helper()
	return labtest.New(t, lab.Config{Topology: "chain"})
}

// places are what a list is about: interface and direction.
func places[T any](list []T, place func(T) string) []string {
	var out []string
	for _, x := range list {
		out = append(out, place(x))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestDirections: a router that counts one direction of each interface has only
// those hooks, totals and coverage, with both probes; an interface that is
// renamed is counted as its new name says.
func TestDirections(t *testing.T) {
	const pings = 50
	for _, probe := range []string{"ebpf", "afpacket"} {
		t.Run(probe, func(t *testing.T) {
			l := newChain(t)
			alpha, athos, beta := l.Host("alpha"), l.Host("athos"), l.Host("beta")
			cfg, _ := agentConfig(t, probe, athos, beta)
			filtered := filepath.Join(t.TempDir(), "filtered.jsonl")
			cfg.Export = append(cfg.Export, config.Export{JSONL: &config.JSONL{Path: filtered, Queue: 1024, Filter: "icmp and iface to-alpha"}})
			cfg.Interfaces = []config.Interface{
				{Match: "to-alpha", Direction: "ingress"},
				{Match: "to-*", Direction: "egress"},
				{Match: "wmr[0]", Direction: "ingress"},
				{Match: "wmr*", Direction: "both"},
			}
			cfg.Exclude = []string{"to-aramis"} // of beta
			a := start(t, cfg)

			want := []string{"to-alpha ingress", "to-porthos egress"}
			hooks := func(s obs.Status) []string {
				return places(s.Hooks, func(h obs.Hook) string { return h.Iface + " " + h.Direction })
			}
			if got := hooks(a.Status()); !slices.Equal(got, want) {
				t.Errorf("hooks %q, want %q", got, want)
			}
			if _, err := traffic.Echo(within(t, time.Minute), alpha, traffic.EchoConfig{To: beta.Addr4(), Count: pings, ID: 7}); err != nil {
				t.Fatal(err)
			}
			awaitStatus(t, a, "all pings are counted once by each hook", func(s obs.Status) bool {
				icmp := slices.DeleteFunc(s.Totals, func(x obs.Total) bool { return x.Protocol != "icmp" })
				return len(icmp) == 2 && icmp[0].Packets == pings && icmp[1].Packets == pings
			})
			waitCovered(t, a)
			status := a.Status()
			if got := places(status.Totals, func(x obs.Total) string { return x.Iface + " " + x.Direction }); !slices.Equal(got, want) {
				t.Errorf("totals %q, want %q", got, want)
			}
			if got := places(status.Interfaces, func(x obs.Interface) string { return x.Iface + " " + x.Direction }); !slices.Equal(got, want) {
				t.Errorf("coverage of %q, want %q", got, want)
			}

			defer func() { // the exporter with a filter
				if err := a.stop(); err != nil {
					t.Fatal(err)
				}
				var packets uint64
				for _, r := range readRecords(t, filtered) {
					packets += r.Packets
					if r.Iface != "to-alpha" || r.Proto != 1 {
						t.Errorf("exported although filtered: %+v", r)
					}
				}
				exporters := a.Status().Exporters
				if all, x := exporters[0], exporters[1]; packets != pings || x.Filtered == 0 || x.Exported+x.Filtered != all.Exported || len(x.Lost) > 0 {
					t.Errorf("%d packets exported, want %d; %+v, of %d", packets, pings, x, all.Exported)
				}
			}()

			link := addVeth(t, athos, "wmr0")
			awaitStatus(t, a, "wmr0 is counted at ingress", func(s obs.Status) bool {
				return slices.Contains(hooks(s), "wmr0 ingress")
			})
			if err := athos.Do(func() error {
				for _, step := range []func() error{
					func() error { return netlink.LinkSetDown(link) },
					func() error { return netlink.LinkSetName(link, "wmr1") },
					func() error { return netlink.LinkSetUp(link) },
				} {
					if err := step(); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			awaitStatus(t, a, "wmr1 is counted in both directions", func(s obs.Status) bool {
				return slices.Equal(hooks(s), []string{"to-alpha ingress", "to-porthos egress", "wmr1 egress", "wmr1 ingress"})
			})
		})
	}
}

// TestForwardedCountsOnce: of pings and a transfer over three routers, which the
// agent sees at up to eight places, the history has each packet once, with the
// interfaces on which it came in and left; on request it has them everywhere.
func TestForwardedCountsOnce(t *testing.T) {
	const pings = 20
	l := newChain(t)
	alpha, beta := l.Host("alpha"), l.Host("beta")
	for _, tt := range []struct {
		name     string
		hosts    []*lab.Host
		in, out  string // of alpha's packets
		sighting uint64 // of each packet
	}{
		{"one router", []*lab.Host{l.Host("athos")}, "athos/to-alpha", "athos/to-porthos", 2},
		{"all hosts", l.Hosts(), "", "alpha/to-athos", 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, _ := agentConfig(t, "auto", tt.hosts...)
			a := start(t, cfg)
			if _, err := traffic.Echo(within(t, time.Minute), alpha, traffic.EchoConfig{To: beta.Addr4(), Count: pings, ID: 7}); err != nil {
				t.Fatal(err)
			}
			sent, err := traffic.Bulk(within(t, time.Minute), alpha, beta, traffic.BulkConfig{
				To: netip.AddrPortFrom(beta.Addr6(), 5000), Bytes: 1_000_000,
			})
			if err != nil {
				t.Fatal(err)
			}
			waitCovered(t, a)
			ask := func(by, expr string, everywhere bool) query.Answer {
				t.Helper()
				keys, err := query.ParseBy(by)
				if err != nil {
					t.Fatal(err)
				}
				chosen, err := filter.Parse(expr)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := a.store.Query(t.Context(), query.Plan{By: keys, Filter: chosen, Everywhere: everywhere})
				if err != nil {
					t.Fatal(err)
				}
				return answer
			}
			awaitStatus(t, a, "all pings are in the history", func(obs.Status) bool {
				return ask("conversation", "icmp", true).Total.Packets == 2*pings*tt.sighting
			})
			if x := ask("conversation", "icmp", false); len(x.Rows) != 1 || x.Rows[0].Packets != 2*pings || x.Rows[0].Back.Packets != pings ||
				x.Total.Packets != 2*pings || x.Repeated.Packets != 2*pings*(tt.sighting-1) {
				t.Errorf("pings: %d rows %+v, total %+v, repeated %+v", len(x.Rows), x.Rows, x.Total, x.Repeated)
			}
			awaitStatus(t, a, "the transfer is in the history", func(obs.Status) bool {
				return ask("transit", "tcp and dst port 5000", false).Total.PayloadBytes == sent.Sender.BytesSent
			})
			x := ask("transit", "tcp and dst port 5000", false)
			prefix := strings.TrimSuffix(alpha.Netns, "alpha")
			if in, out := strings.TrimPrefix(x.Rows[0].In, prefix), strings.TrimPrefix(x.Rows[0].Out, prefix); len(x.Rows) != 1 || in != tt.in || out != tt.out {
				t.Errorf("%d rows; in on %q and out on %q, want %q and %q", len(x.Rows), in, out, tt.in, tt.out)
			}
			if back := ask("transit", "tcp and src port 5000", false).Rows; len(back) != 1 || strings.TrimPrefix(back[0].Out, prefix) == tt.out {
				t.Errorf("way back: %+v", back)
			}
		})
	}
}
