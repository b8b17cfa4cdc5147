package agent

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/test/await"
)

// An interface whose index has more than 22 bits is counted like any other, under
// its own index.
func TestLargeIndex(t *testing.T) {
	const large = 9<<22 + 1
	for _, probe := range []string{"ebpf", "afpacket"} {
		t.Run(probe, func(t *testing.T) {
			alpha := newLab(t).Host("alpha")
			cfg, path := agentConfig(t, probe, alpha)
			cfg.Interfaces = []config.Interface{{Match: "big*", Direction: "both"}}
			a := start(t, cfg)
			var small netlink.Link
			if err := alpha.Do(func() (err error) {
				big := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "big0", Index: large}, PeerName: "small0"}
				if err := netlink.LinkAdd(big); err != nil {
					return err
				}
				small, err = netlink.LinkByName("small0")
				return errors.Join(err, netlink.LinkSetUp(big))
			}); err != nil {
				t.Fatal(err)
			}
			waitReady(t, a, "")
			// With both ends up they tell of themselves (MLD).
			if err := alpha.Do(func() error { return netlink.LinkSetUp(small) }); err != nil {
				t.Fatal(err)
			}
			await.Success(t, func() error {
				n, list := 0, a.Status().Interfaces
				for _, i := range list {
					if i.Iface == "big0" && i.Coverage == 1 && i.Packets > 0 {
						n++
					}
				}
				if n != 2 {
					return fmt.Errorf("not covered: %+v", list)
				}
				return nil
			})
			for _, h := range a.Status().Hooks {
				if h.IfIndex != large || h.State != "attached" {
					t.Errorf("hook %+v", h)
				}
			}
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			records := readRecords(t, path)
			for _, r := range records {
				if r.Iface != "big0" {
					t.Errorf("a record of %s", r.Iface)
				}
			}
			if len(records) == 0 {
				t.Error("no records")
			}
		})
	}
}
