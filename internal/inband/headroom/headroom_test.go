package headroom

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/test/await"
)

// A process of its own, to be killed: it reserves and waits.
func TestMain(m *testing.M) {
	if spec := os.Getenv("HEADROOM_TEST_HOLD"); spec != "" {
		if err := hold(spec); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func hold(spec string) error {
	var l Link
	var cfg Config
	fields := strings.Split(spec, ",")
	l.Netns, l.Name, cfg.File = fields[0], fields[1], fields[2]
	if _, err := fmt.Sscan(fields[3], &l.Index); err != nil {
		return err
	}
	k := New(cfg, Deps{In: topology.InNetns, Log: slog.New(slog.DiscardHandler)})
	if err := k.Reserve(l, Need{Mode: Interface, Bytes: 16, Packets: true}); err != nil {
		return err
	}
	fmt.Println("reserved")
	_, err := io.Copy(io.Discard, os.Stdin) // until the test ends
	return err
}

// host is a namespace with one interface that has IPv6.
type host struct {
	*lab.Host
	link Link
	name string // of the interface, by now
	file string
}

func newHost(t *testing.T, mtu int) *host {
	t.Helper()
	solo := labtest.NewHost(t)
	h := &host{Host: solo, link: Link{Netns: solo.Netns, Name: "eth9"}, name: "eth9", file: filepath.Join(t.TempDir(), "run", "headroom.json")}
	h.do(t, func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth9", MTU: mtu}, PeerName: "peer"}
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		for _, name := range []string{"eth9", "peer"} {
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMTU(l, mtu); err != nil {
				return err
			}
			if err := netlink.LinkSetUp(l); err != nil {
				return err
			}
			if name == "eth9" {
				h.link.Index = l.Attrs().Index
				addr := &net.IPNet{IP: net.ParseIP("2001:db8:1::1"), Mask: net.CIDRMask(64, 128)}
				if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: addr, Flags: unix.IFA_F_NODAD}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	// When the carrier is noticed, Linux sets the IPv6 MTU to that of the device.
	await.True(t, "the carrier", func() (up bool) {
		h.do(t, func() error {
			l, err := netlink.LinkByName("eth9")
			up = err == nil && l.Attrs().OperState == netlink.OperUp
			return err
		})
		return up
	})
	return h
}

func (h *host) do(t *testing.T, f func() error) {
	t.Helper()
	if err := h.Do(f); err != nil {
		t.Fatal(err)
	}
}

// markKeeper is the keeper of an agent with one stage, which adds 16 bytes.
type markKeeper struct {
	*Keeper
	need Need
}

func (k markKeeper) Reserve(l Link) error { return k.Keeper.Reserve(l, k.need) }

func (h *host) keeper(need Need) markKeeper {
	need.Key, need.Bytes = "pdm.reserve", 16
	return markKeeper{New(Config{File: h.file}, Deps{In: topology.InNetns, Log: slog.New(slog.DiscardHandler)}), need}
}

// expect checks IPv6 MTU and segments.
func (h *host) expect(t *testing.T, mtu, segments int) {
	t.Helper()
	h.do(t, func() error {
		gotMTU, err := readMTU(h.name)
		if err != nil {
			return err
		}
		l, err := netlink.LinkByName(h.name)
		if err != nil {
			return err
		}
		if gotMTU != mtu || int(l.Attrs().GSOMaxSegs) != segments {
			t.Errorf("IPv6 MTU %d and gso_max_segs %d, want %d and %d", gotMTU, l.Attrs().GSOMaxSegs, mtu, segments)
		}
		return nil
	})
}

func (h *host) hasFile(t *testing.T, want bool) {
	t.Helper()
	if _, err := os.Stat(h.file); (err == nil) != want {
		t.Errorf("journal: %v, want it: %t", err, want)
	}
}

const allSegments = 65535

func TestReserveAndRestore(t *testing.T) {
	for _, c := range []struct {
		cfg           Need
		mtu, segments int
	}{
		{Need{Mode: Interface}, 1484, allSegments},
		{Need{Mode: Interface, Packets: true}, 1484, 1},
		{Need{Mode: None, Packets: true}, 1500, 1},
		{Need{Mode: None}, 1500, allSegments},
	} {
		t.Run(fmt.Sprintf("%s, packets %t", c.cfg.Mode, c.cfg.Packets), func(t *testing.T) {
			h := newHost(t, 1500)
			k := h.keeper(c.cfg)
			if _, err := k.Recover(); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time there is nothing left to do
				if err := k.Reserve(h.link); err != nil {
					t.Fatal(err)
				}
				h.expect(t, c.mtu, c.segments)
			}
			h.hasFile(t, c.mtu != 1500 || c.segments != allSegments)
			if err := k.Restore(); err != nil {
				t.Fatal(err)
			}
			h.expect(t, 1500, allSegments)
			h.hasFile(t, false)
		})
	}
}

// set changes the MTU of the link; the kernel makes it the IPv6 MTU too.
func (h *host) set(t *testing.T, mtu int) {
	t.Helper()
	h.change(t, func(l netlink.Link) error { return netlink.LinkSetMTU(l, mtu) })
}

func (h *host) change(t *testing.T, f func(netlink.Link) error) {
	t.Helper()
	h.do(t, func() error {
		l, err := netlink.LinkByIndex(h.link.Index)
		if err != nil {
			return err
		}
		return f(l)
	})
}

// rename reports false where the kernel renames no interface that is up (before 6.2).
func (h *host) rename(t *testing.T, name string) (renamed bool) {
	t.Helper()
	h.change(t, func(l netlink.Link) error {
		err := netlink.LinkSetName(l, name)
		if renamed = err == nil; renamed {
			h.name = name
		}
		if errors.Is(err, unix.EBUSY) {
			return nil
		}
		return err
	})
	return renamed
}

// An interface that is too small gets what can be had, and the rest when its MTU
// is raised. Whatever its MTU was meanwhile, everything is restored.
func TestTooSmall(t *testing.T) {
	h := newHost(t, 1295)
	k := h.keeper(Need{Mode: Interface, Packets: true})
	for range 2 {
		if err := k.Reserve(h.link); !errors.Is(err, ErrTooSmall) || !strings.Contains(err.Error(), "1296") {
			t.Errorf("MTU 1295: %v", err)
		}
		h.expect(t, 1295, 1)
	}
	_, problems := k.Status()
	if len(problems) != 1 || !errors.Is(problems[0].Err, ErrTooSmall) {
		t.Errorf("problems %v", problems)
	}
	h.set(t, 1296)
	for range 2 { // the second time is no reason to take more
		k.Keep()
		h.expect(t, 1280, 1)
	}
	if _, problems := k.Status(); len(problems) != 0 {
		t.Errorf("problems %v", problems)
	}
	h.set(t, 1200) // which ends IPv6 on the interface
	k.Keep()
	h.set(t, 1500)
	k.Keep()
	h.expect(t, 1484, 1)
	h.set(t, 1290)
	k.Keep()
	h.expect(t, 1290, 1)
	h.set(t, 1400)
	if err := k.Restore(); err != nil {
		t.Error(err)
	}
	h.expect(t, 1400, allSegments)
	h.hasFile(t, false)
}

// What something else sets meanwhile stays, with headroom taken from it while
// marking goes on.
func TestKeep(t *testing.T) {
	h := newHost(t, 1500)
	k := h.keeper(Need{Mode: Interface, Packets: true})
	if err := k.Reserve(h.link); err != nil {
		t.Fatal(err)
	}
	h.set(t, 2000)
	h.expect(t, 2000, 1)
	k.Keep()
	h.expect(t, 1984, 1)
	if err := k.Release(h.link); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 2000, allSegments)

	if err := k.Reserve(h.link); err != nil {
		t.Fatal(err)
	}
	h.do(t, func() error { return writeMTU("eth9", 1285) })
	h.change(t, func(l netlink.Link) error { return netlink.LinkSetGSOMaxSegs(l, 100) })
	if err := k.Restore(); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 1285, 100) // not ours to change
	h.hasFile(t, false)
}

// An interface keeps its settings when it is renamed, and gets them back.
func TestRename(t *testing.T) {
	h := newHost(t, 1500)
	k := h.keeper(Need{Mode: Interface, Packets: true})
	if err := k.Reserve(h.link); err != nil {
		t.Fatal(err)
	}
	if !h.rename(t, "wan0") {
		h.change(t, netlink.LinkSetDown)
		h.rename(t, "wan0")
		h.change(t, netlink.LinkSetUp) // the kernel forgets the IPv6 MTU
	}
	k.Keep()
	h.expect(t, 1484, 1)
	if err := k.Restore(); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 1500, allSegments)
	h.hasFile(t, false)
}

// An interface or a namespace that is gone has nothing to restore.
func TestInterfaceVanishes(t *testing.T) {
	h := newHost(t, 1500)
	k := h.keeper(Need{Mode: Interface, Packets: true})
	if err := k.Reserve(h.link); err != nil {
		t.Fatal(err)
	}
	h.change(t, netlink.LinkDel)
	k.Keep()
	if reduced, problems := k.Status(); len(reduced)+len(problems) != 0 {
		t.Errorf("of an interface that is gone: %v %v", reduced, problems)
	}
	if err := k.Restore(); err != nil {
		t.Error(err)
	}
	h.hasFile(t, false)
}

// The segments of a burst are a property of the device, which it keeps in another
// namespace: they are restored there, whichever agent does it.
func TestMoved(t *testing.T) {
	for name, restore := range map[string]func(*Keeper, *host) error{
		"by the agent that runs": func(k *Keeper, _ *host) error { k.Keep(); return k.Restore() },
		"by the next agent": func(k *Keeper, h *host) error {
			k.journal.close() // as if it had been killed
			_, err := h.keeper(Need{}).Recover()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, 1500)
			k := h.keeper(Need{Mode: Interface, Packets: true})
			if err := k.Reserve(h.link); err != nil {
				t.Fatal(err)
			}
			h.expect(t, 1484, 1)
			to, err := topology.OpenNetns(labtest.NewHost(t).Netns)
			if err != nil {
				t.Fatal(err)
			}
			defer to.Close()
			h.change(t, func(l netlink.Link) error { return netlink.LinkSetNsFd(l, to.Fd()) })
			if err := restore(k.Keeper, h); err != nil {
				t.Error(err)
			}
			if err := to.Do(func() error {
				l, err := netlink.LinkByName(h.name)
				if err == nil && l.Attrs().GSOMaxSegs != allSegments {
					t.Errorf("gso_max_segs is %d", l.Attrs().GSOMaxSegs)
				}
				return err
			}); err != nil {
				t.Error(err)
			}
			h.hasFile(t, false)
		})
	}
}

// Two agents share what is reduced: the last restores it, whichever it is.
func TestTwoAgents(t *testing.T) {
	h := newHost(t, 1500)
	a, b := h.keeper(Need{Mode: Interface}), h.keeper(Need{Mode: Interface, Packets: true})
	for _, k := range []markKeeper{a, b} {
		if err := k.Reserve(h.link); err != nil {
			t.Fatal(err)
		}
	}
	h.expect(t, 1484, 1)
	h.set(t, 1800)
	a.Keep()
	b.Keep()
	h.expect(t, 1784, 1)
	if restored, err := b.Recover(); err != nil || len(restored) != 0 {
		t.Errorf("restored %v of an agent that runs, %v", restored, err)
	}
	if err := a.Restore(); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 1784, 1)
	if err := b.Restore(); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 1800, allSegments)
	h.hasFile(t, false)
}
