package headroom

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/topology"
)

// killedAgent reserves in a process of its own, which is then killed.
func killedAgent(t *testing.T, h *host, while func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("HEADROOM_TEST_HOLD=%s,%s,%s,%d", h.link.Netns, h.link.Name, h.file, h.link.Index))
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
	if err == nil && while != nil {
		while()
	}
	killErr := cmd.Process.Signal(unix.SIGKILL)
	_ = cmd.Wait()
	if err != nil || killErr != nil || !strings.HasPrefix(string(line[:n]), "reserved") {
		t.Fatalf("the other agent printed %q, %v, %v", line[:n], err, killErr)
	}
}

// After a kill any agent restores the settings, also one that marks nothing, and
// though interface and namespace have other names by now.
func TestKilledAgent(t *testing.T) {
	h := newHost(t, 1500)
	left := func(want int) {
		t.Helper()
		found, err := Stale(h.file)
		if err != nil || len(found) != want {
			t.Errorf("stale reductions %v, %v; want %d", found, err, want)
		}
	}
	left(0)
	killedAgent(t, h, func() {
		left(0)
		if restored, err := h.keeper(Need{Mode: None}).Recover(); err != nil || len(restored) != 0 {
			t.Errorf("while the other runs: %v, %v", restored, err)
		}
		h.expect(t, 1484, 1)
	})
	h.expect(t, 1484, 1)
	left(2)
	h.rename(t, "wan0") // or the old name stays
	renameNetns(t, h)
	k := h.keeper(Need{Mode: None})
	restored, err := k.Recover()
	if err != nil || len(restored) != 2 {
		t.Errorf("restored %v, %v", restored, err)
	}
	h.expect(t, 1500, allSegments)
	h.hasFile(t, false)
	left(0)

	// The next one that marks takes over what it needs itself.
	killedAgent(t, h, nil)
	k = h.keeper(Need{Mode: Interface})
	if err := k.Reserve(h.link); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 1484, 1)
	left(1)
	if _, err := k.Recover(); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 1484, allSegments)
	if err := k.Restore(); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 1500, allSegments)
	h.hasFile(t, false)
}

// renameNetns gives the namespace of h another name.
func renameNetns(t *testing.T, h *host) {
	t.Helper()
	from := filepath.Join(topology.NetnsDir, h.link.Netns)
	to := from + "-renamed"
	if err := os.WriteFile(to, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := lab.DeleteNetns(h.link.Netns); err != nil {
		t.Fatal(err)
	}
	h.link.Netns += "-renamed"
	h.Netns = h.link.Netns
}

// An agent whose journal is lost, with its container, leaves an MTU that the
// next one neither lowers further nor raises.
func TestLostJournal(t *testing.T) {
	h := newHost(t, 1500)
	killedAgent(t, h, nil)
	if err := os.Remove(h.file); err != nil {
		t.Fatal(err)
	}
	k := h.keeper(Need{Mode: Interface, Packets: true})
	if err := k.Reserve(h.link); err != nil {
		t.Fatal(err)
	}
	k.Keep()
	if reduced, problems := k.Status(); len(reduced)+len(problems) != 0 {
		t.Errorf("reduced %v, problems %v", reduced, problems)
	}
	if err := k.Restore(); err != nil {
		t.Fatal(err)
	}
	h.expect(t, 1484, 1)
	h.hasFile(t, false)
}

// Without a journal that can be written, nothing is changed.
func TestNoJournal(t *testing.T) {
	h := newHost(t, 1500)
	expect := func(want string) {
		t.Helper()
		k := h.keeper(Need{Mode: Interface, Packets: true})
		if err := k.Reserve(h.link); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err := k.Restore(); err != nil {
			t.Error(err)
		}
		h.expect(t, 1500, allSegments)
	}
	dir := filepath.Dir(h.file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect("delete the file")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expect("journal of MTU headroom")
}

// Of the routes only those to what policies name lose bytes.
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
			routes, err := routesOf(h.link.Index)
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
	k := h.keeper(Need{Mode: Route, Prefixes: []netip.Prefix{prefix("2001:db8:a:1::/64"), prefix("2001:db8:b::/47")}})
	if err := k.Reserve(h.link); err != nil {
		t.Fatal(err)
	}
	expect(map[string]int{"2001:db8:1::/64": 0, "2001:db8:a::/48": 1484, "2001:db8:b::/48": 1384, "2001:db8:c::/48": 0})
	h.expect(t, 1500, allSegments)
	k.Keep()
	expect(map[string]int{"2001:db8:1::/64": 0, "2001:db8:a::/48": 1484, "2001:db8:b::/48": 1384, "2001:db8:c::/48": 0})
	h.do(t, func() error { return writeMTU("eth9", 1450) })
	k.Keep()
	expect(map[string]int{"2001:db8:1::/64": 0, "2001:db8:a::/48": 1434, "2001:db8:b::/48": 1384, "2001:db8:c::/48": 0})
	if err := k.Restore(); err != nil {
		t.Fatal(err)
	}
	expect(before)
	h.hasFile(t, false)

	route("2001:db8:d::/48", "2001:db8:1::2", 0, unix.RTPROT_RA)
	k = h.keeper(Need{Mode: Route, Prefixes: []netip.Prefix{prefix("2001:db8:d::/48")}})
	if err := k.Reserve(h.link); err == nil || !strings.Contains(err.Error(), "reserve: interface") {
		t.Errorf("an advertised route: %v", err)
	}
}
