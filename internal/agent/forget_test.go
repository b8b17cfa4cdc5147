package agent

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// awaitStatus polls the status of an agent.
func awaitStatus(t *testing.T, a *running, what string, done func(obs.Status) bool) {
	t.Helper()
	await.Success(t, func() error {
		if s := a.Status(); !done(s) {
			return fmt.Errorf("waiting for: %s; totals %+v", what, s.Totals)
		}
		return nil
	})
}

// An interface that is long gone leaves nothing behind, in memory or in metrics.
func TestGoneInterfacesAreForgotten(t *testing.T) {
	for _, probe := range []string{"ebpf", "afpacket"} {
		t.Run(probe, func(t *testing.T) {
			host := newLab(t).Hosts()[0]
			cfg, _ := agentConfig(t, probe, host)
			cfg.Interfaces = []config.Interface{{Match: "wmx*"}}
			var passed atomic.Int64
			a := startAt(t, cfg, func() time.Time { return time.Now().Add(time.Duration(passed.Load())) })

			comeAndGo := func(name string) {
				t.Helper()
				link := addVeth(t, host, name)
				sender := labtest.NewSender(t, host, "p"+name)
				counted := func(s obs.Status) bool {
					// Before programs are attached, nothing counts it.
					if err := sender.Send(packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(1000, 2000).Bytes()); err != nil {
						t.Fatal(err)
					}
					return slices.ContainsFunc(s.Totals, func(x obs.Total) bool { return x.Iface == name })
				}
				awaitStatus(t, a, name+" is counted", counted)
				if err := host.Do(func() error { return netlink.LinkDel(link) }); err != nil {
					t.Fatal(err)
				}
				awaitStatus(t, a, name+" is gone", func(s obs.Status) bool {
					return !slices.ContainsFunc(s.Hooks, func(h obs.Hook) bool { return h.Iface == name })
				})
			}
			comeAndGo("wmx0")
			passed.Store(int64(time.Hour))
			comeAndGo("wmx1")
			awaitStatus(t, a, "wmx0 is forgotten", func(s obs.Status) bool {
				return !slices.ContainsFunc(s.Totals, func(x obs.Total) bool {
					return x.Iface == "wmx0" || strings.HasPrefix(x.Iface, "if")
				})
			})
		})
	}
}

// addVeth adds a pair to a host, both ends up.
func addVeth(t *testing.T, host *lab.Host, name string) netlink.Link {
	t.Helper()
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "p" + name}
	err := host.Do(func() error {
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		for _, end := range []string{name, "p" + name} {
			link, err := netlink.LinkByName(end)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
