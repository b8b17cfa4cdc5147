package headroom

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/topology"
)

// A process of its own, to be killed: it reserves and waits.
func TestMain(m *testing.M) {
	if spec := os.Getenv("ROOM_TEST_HOLD"); spec != "" {
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
	cfg.Mode, cfg.Packets = Interface, true
	k := New(cfg, Deps{In: topology.InNetns, Log: slog.New(slog.DiscardHandler)})
	if err := k.Reserve(l); err != nil {
		return err
	}
	fmt.Println("reserved")
	_, err := io.Copy(io.Discard, os.Stdin) // until the test ends
	return err
}

// host is a namespace with one interface that has IPv6.
type host struct {
	link Link
	file string
}

func newHost(t *testing.T, mtu int) *host {
	t.Helper()
	netns := fmt.Sprintf("wmroom%d-%d", os.Getpid(), time.Now().UnixNano()%1e6)
	if err := lab.AddNetns(netns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.DeleteNetns(netns); err != nil {
			t.Error(err)
		}
	})
	h := &host{link: Link{Netns: netns, Name: "eth9"}, file: filepath.Join(t.TempDir(), "room", "room.json")}
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
	return h
}

func (h *host) do(t *testing.T, f func() error) {
	t.Helper()
	if err := topology.InNetns(h.link.Netns, f); err != nil {
		t.Fatal(err)
	}
}

func (h *host) keeper(cfg Config) *Keeper {
	cfg.File = h.file
	return New(cfg, Deps{In: topology.InNetns, Log: slog.New(slog.DiscardHandler)})
}

// expect checks IPv6 MTU and segments.
func (h *host) expect(t *testing.T, mtu, segments int) {
	t.Helper()
	h.do(t, func() error {
		gotMTU, err := readMTU("eth9")
		if err != nil {
			return err
		}
		l, err := netlink.LinkByName("eth9")
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
		t.Errorf("file of changes: %v, want it: %t", err, want)
	}
}

const allSegments = 65535

func TestReserveAndRestore(t *testing.T) {
	for _, c := range []struct {
		cfg           Config
		mtu, segments int
	}{
		{Config{Mode: Interface}, 1484, allSegments},
		{Config{Mode: Interface, Packets: true}, 1484, 1},
		{Config{Mode: None, Packets: true}, 1500, 1},
		{Config{Mode: None}, 1500, allSegments},
	} {
		t.Run(fmt.Sprintf("%s, packets %t", c.cfg.Mode, c.cfg.Packets), func(t *testing.T) {
			h := newHost(t, 1500)
			k := h.keeper(c.cfg)
			if err := k.Recover(); err != nil {
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

func TestRefusesBelow1280(t *testing.T) {
	for _, mtu := range []int{1280, 1295} {
		h := newHost(t, mtu)
		k := h.keeper(Config{Mode: Interface, Packets: true})
		for _, err := range []error{k.Check(h.link), k.Reserve(h.link)} {
			if !errors.Is(err, ErrTooSmall) || !strings.Contains(err.Error(), "1296") {
				t.Errorf("MTU %d: %v", mtu, err)
			}
		}
		h.expect(t, mtu, allSegments)
		h.hasFile(t, false)
	}
	h := newHost(t, 1296)
	k := h.keeper(Config{Mode: Interface})
	if err := k.Reserve(h.link); err != nil {
		t.Error(err)
	}
	h.expect(t, 1280, allSegments)
	if err := k.Keep(); err != nil { // which is no reason to take more
		t.Error(err)
	}
	h.expect(t, 1280, allSegments)
}

// What someone else sets meanwhile stays, with room taken from it while marking
// goes on.
func TestKeep(t *testing.T) {
	h := newHost(t, 1500)
	k := h.keeper(Config{Mode: Interface, Packets: true})
	if err := k.Reserve(h.link); err != nil {
		t.Fatal(err)
	}
	set := func(mtu int) {
		h.do(t, func() error {
			l, err := netlink.LinkByName("eth9")
			if err != nil {
				return err
			}
			return netlink.LinkSetMTU(l, mtu)
		})
	}
	set(2000) // the kernel makes this the IPv6 MTU, too
	h.expect(t, 2000, 1)
	if err := k.Keep(); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 1984, 1)
	if err := k.Release(h.link); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 2000, allSegments)

	if err := k.Reserve(h.link); err != nil {
		t.Fatal(err)
	}
	set(1290)
	if err := k.Keep(); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 1290, 1) // no room to be had
	h.do(t, func() error { return writeMTU("eth9", 1285) })
	if err := k.Restore(); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 1285, allSegments) // what another set is not ours to change
}

// An interface or a namespace that is gone has nothing to put back.
func TestInterfaceVanishes(t *testing.T) {
	h := newHost(t, 1500)
	k := h.keeper(Config{Mode: Interface, Packets: true})
	if err := k.Reserve(h.link); err != nil {
		t.Fatal(err)
	}
	h.do(t, func() error {
		l, err := netlink.LinkByName("eth9")
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
	if err := k.Keep(); err != nil {
		t.Error(err)
	}
	if err := k.Restore(); err != nil {
		t.Error(err)
	}
	h.hasFile(t, false)
}

// After a kill the next agent puts back what there was; while the first runs, it
// keeps its hands off.
func TestKilledAgent(t *testing.T) {
	h := newHost(t, 1500)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("ROOM_TEST_HOLD=%s,%s,%s,%d", h.link.Netns, h.link.Name, h.file, h.link.Index))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 100)
	n, err := out.Read(line)
	if err != nil || !strings.HasPrefix(string(line[:n]), "reserved") {
		_ = cmd.Process.Kill()
		t.Fatalf("the other agent said %q, %v", line[:n], err)
	}
	h.expect(t, 1484, 1)
	k := h.keeper(Config{Mode: Interface})
	if err := k.Recover(); !errors.Is(err, ErrBusy) {
		t.Errorf("while the other runs: %v", err)
	}
	if err := h.keeper(Config{Mode: None}).Recover(); err != nil {
		t.Errorf("one that changes nothing: %v", err)
	}
	h.expect(t, 1484, 1)
	if err := cmd.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	h.expect(t, 1484, 1)
	h.hasFile(t, true)
	if err := k.Recover(); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 1500, allSegments)
	h.hasFile(t, false)
}

func TestBrokenFile(t *testing.T) {
	h := newHost(t, 1500)
	if err := os.MkdirAll(filepath.Dir(h.file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.keeper(Config{Mode: Interface}).Recover(); err == nil || !strings.Contains(err.Error(), "delete the file") {
		t.Errorf("%v", err)
	}
}

// Of the routes only those to what policies name lose octets.
func TestRoutes(t *testing.T) {
	h := newHost(t, 1500)
	prefix := netip.MustParsePrefix
	route := func(to, via string, mtu, protocol int) {
		h.do(t, func() error {
			_, dst, err := net.ParseCIDR(to)
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{
				LinkIndex: h.link.Index, Dst: dst, Gw: net.ParseIP(via), MTU: mtu, Protocol: netlink.RouteProtocol(protocol),
			})
		})
	}
	route("2001:db8:a::/48", "2001:db8:1::2", 0, unix.RTPROT_STATIC)
	route("2001:db8:b::/48", "2001:db8:1::2", 1400, unix.RTPROT_STATIC)
	route("2001:db8:c::/48", "2001:db8:1::2", 0, unix.RTPROT_STATIC)
	mtus := func() map[string]int {
		got := map[string]int{}
		h.do(t, func() error {
			routes, err := routesOf(h.link)
			for _, r := range routes {
				got[idOf(&r).To.String()] = r.MTU
			}
			return err
		})
		return got
	}
	expect := func(want map[string]int) {
		t.Helper()
		if got := mtus(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("route MTUs %v, want %v", got, want)
		}
	}
	before := map[string]int{"2001:db8:1::/64": 0, "2001:db8:a::/48": 0, "2001:db8:b::/48": 1400, "2001:db8:c::/48": 0}
	expect(before)
	k := h.keeper(Config{Mode: Route, Prefixes: []netip.Prefix{prefix("2001:db8:a:1::/64"), prefix("2001:db8:b::/47")}})
	if err := k.Reserve(h.link); err != nil {
		t.Fatal(err)
	}
	expect(map[string]int{"2001:db8:1::/64": 0, "2001:db8:a::/48": 1484, "2001:db8:b::/48": 1384, "2001:db8:c::/48": 0})
	h.expect(t, 1500, allSegments)
	if err := k.Keep(); err != nil {
		t.Fatal(err)
	}
	if err := k.Restore(); err != nil {
		t.Fatal(err)
	}
	expect(before)
	h.hasFile(t, false)

	route("2001:db8:d::/48", "2001:db8:1::2", 0, unix.RTPROT_RA)
	k = h.keeper(Config{Mode: Route, Prefixes: []netip.Prefix{prefix("2001:db8:d::/48")}})
	if err := k.Reserve(h.link); err == nil || !strings.Contains(err.Error(), "reserve: interface") {
		t.Errorf("a route that a router told of: %v", err)
	}
}
