package topology_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/test/await"
)

// netnsPrefix is unique to this process.
var netnsPrefix = fmt.Sprintf("tt%d-", os.Getpid())

// addNetns makes a namespace that goes with the test; it returns its full name.
func addNetns(t *testing.T, name string) string {
	t.Helper()
	return labtest.NamedHost(t, netnsPrefix+name).Netns
}

func deleteNetns(t *testing.T, name string) {
	t.Helper()
	if err := lab.DeleteNetns(name); err != nil {
		t.Error(err)
	}
}

// in runs fn in a namespace.
func in(t *testing.T, netns string, fn func() error) {
	t.Helper()
	if err := topology.InNetns(netns, fn); err != nil {
		t.Fatal(err)
	}
}

// addVeth makes a pair of links in the calling thread's namespace.
func addVeth(name, peer string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	veth := netlink.NewVeth(attrs)
	veth.PeerName = peer
	return netlink.LinkAdd(veth)
}

func byName(name string, fn func(netlink.Link) error) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return fn(link)
}

// watch is a Watcher at work whose own namespace is one of the test's.
type watch struct {
	*topology.Watcher
	*topology.Registry
	events chan topology.Event
	gate   sync.Mutex // held: Emit waits
	log    await.Text
}

func startWatch(t *testing.T, own string, cfg topology.Config, adjust ...func(*watch)) *watch {
	t.Helper()
	w := &watch{events: make(chan topology.Event, 10_000)}
	w.Registry = topology.NewRegistry(cfg.Linger, time.Now)
	var err error
	w.Watcher, err = topology.New(cfg, topology.Deps{
		Registry: w.Registry,
		Emit: func(e topology.Event) {
			w.gate.Lock()
			defer w.gate.Unlock()
			w.events <- e
		},
		Log: slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range adjust {
		a(w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- topology.InNetns(own, func() error { return w.Run(ctx) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return w
}

// expect takes the next events and compares them, written as "added eth0".
func (w *watch) expect(t *testing.T, want ...string) []topology.Event {
	t.Helper()
	var got []string
	var events []topology.Event
	for range want {
		select {
		case e := <-w.events:
			events = append(events, e)
			got = append(got, describe(e))
		case <-time.After(await.Patience):
			t.Fatalf("no event within %v; got %v, want %v", await.Patience, got, want)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	return events
}

func describe(e topology.Event) string {
	s := e.Kind.String()
	if e.Link.Name != "" || e.Link.Netns != "" {
		s += " " + strings.ReplaceAll(e.Link.String(), netnsPrefix, "")
	}
	if e.Kind == topology.Renamed {
		s += " from " + e.Old
	}
	return s
}

func TestFollowsLinks(t *testing.T) {
	own := addNetns(t, "own")
	w := startWatch(t, own, topology.Config{Interfaces: []string{"eth7", "v*"}, Linger: time.Minute})
	w.expect(t, "synced")
	if ifaces, _ := w.Waiting(); !cmp.Equal(ifaces, []string{"eth7"}) {
		t.Errorf("waiting for %v, want eth7", ifaces)
	}
	for _, step := range []struct {
		what string
		do   func() error
		want []string
	}{
		// The peer's name does not match.
		{"add", func() error { return addVeth("v0", "other") }, []string{"added v0"}},
		{"up", func() error { return byName("v0", netlink.LinkSetUp) }, []string{"up v0"}},
		{"down", func() error { return byName("v0", netlink.LinkSetDown) }, []string{"down v0"}},
		{
			"rename", func() error {
				return byName("v0", func(l netlink.Link) error { return netlink.LinkSetName(l, "eth7") })
			},
			[]string{"renamed eth7 from v0"},
		},
		{
			"rename away", func() error {
				return byName("eth7", func(l netlink.Link) error { return netlink.LinkSetName(l, "x0") })
			},
			[]string{"removed eth7"},
		},
		{
			"rename back", func() error { return byName("x0", func(l netlink.Link) error { return netlink.LinkSetName(l, "v0") }) },
			[]string{"added v0"},
		},
		{"delete", func() error { return byName("v0", netlink.LinkDel) }, []string{"removed v0"}},
		{
			"delete and make again", func() error {
				return errors.Join(addVeth("v0", "other"), byName("v0", netlink.LinkDel), addVeth("v0", "other"))
			},
			[]string{"added v0", "removed v0", "added v0"},
		},
	} {
		t.Log(step.what)
		in(t, own, step.do)
		for _, e := range w.expect(t, step.want...) {
			if e.Kind == topology.Removed && e.Gone != strings.HasPrefix(step.what, "delete") {
				t.Errorf("%s: gone is %t", step.what, e.Gone)
			}
		}
	}
	if l, ok := w.Link(flow.NewIface(0, 1)); !ok || l.Name != "lo" || l.Kind != "loopback" || !l.Ethernet() {
		t.Errorf("interface 1 of namespace 0 is %+v, %v; want lo", l, ok)
	}
}

// A bridge tells of ports that leave with the message that otherwise says that
// a link is gone.
func TestBridgePortThatLeavesIsNotGone(t *testing.T) {
	own := addNetns(t, "own")
	in(t, own, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "br0"
		return errors.Join(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}), addVeth("v0", "v1"))
	})
	w := startWatch(t, own, topology.Config{Interfaces: []string{"v0"}, Linger: time.Minute})
	w.expect(t, "added v0", "synced")
	in(t, own, func() error {
		return byName("v0", func(l netlink.Link) error {
			return errors.Join(
				byName("br0", func(br netlink.Link) error { return netlink.LinkSetMasterByIndex(l, br.Attrs().Index) }),
				netlink.LinkSetNoMaster(l), netlink.LinkSetUp(l))
		})
	})
	w.expect(t, "up v0")
}

func TestFollowsNamespaces(t *testing.T) {
	own := addNetns(t, "own")
	early := addNetns(t, "early")
	in(t, early, func() error { return addVeth("v0", "v1") })
	w := startWatch(t, own, topology.Config{
		Interfaces: []string{"v0"}, Netns: []string{netnsPrefix + "*", netnsPrefix + "late"}, Linger: time.Minute,
	})
	first := w.expect(t, "added early/v0", "synced")[0]
	if _, netns := w.Waiting(); !cmp.Equal(netns, []string{netnsPrefix + "late"}) {
		t.Errorf("waiting for namespaces %v, want late", netns)
	}

	late := addNetns(t, "late")
	in(t, late, func() error { return addVeth("v0", "v1") })
	second := w.expect(t, "added late/v0")[0]
	if first.Link.Iface.Netns() == second.Link.Iface.Netns() || second.Link.Iface.Netns() == 0 {
		t.Errorf("namespace numbers %d and %d", first.Link.Iface.Netns(), second.Link.Iface.Netns())
	}
	if _, netns := w.Waiting(); len(netns) != 0 {
		t.Errorf("still waiting for namespaces %v", netns)
	}

	deleteNetns(t, late)
	w.expect(t, "removed late/v0")
	if l, ok := w.Link(second.Link.Iface); !ok || l.Name != "v0" || l.Netns != late {
		t.Errorf("an interface that is gone is known as %+v, %v", l, ok)
	}

	if err := lab.AddNetns(late); err != nil { // the same name again; cleaned up already
		t.Fatal(err)
	}
	in(t, late, func() error { return addVeth("v0", "v1") })
	third := w.expect(t, "added late/v0")[0]
	if third.Link.Iface == second.Link.Iface {
		t.Errorf("the namespace made again has number %d of the one that is gone", third.Link.Iface.Netns())
	}
	in(t, late, func() error { return byName("v0", netlink.LinkDel) })
	w.expect(t, "removed late/v0")

	// A link that moves goes in one namespace and comes in the other.
	in(t, early, func() error {
		return byName("v0", func(l netlink.Link) error {
			ns, err := topology.OpenNetns(late)
			if err != nil {
				return err
			}
			defer ns.Close()
			return netlink.LinkSetNsFd(l, ns.Fd())
		})
	})
	moved := map[string]bool{}
	for range 2 {
		moved[describe(<-w.events)] = true
	}
	if !moved["removed early/v0"] || !moved["added late/v0"] {
		t.Errorf("events of a move: %v", moved)
	}
}

// The watcher must not keep a namespace alive that lost its name.
func TestLetsGoOfNamespaces(t *testing.T) {
	own, other := addNetns(t, "own"), addNetns(t, "other")
	in(t, own, func() error { return addVeth("v0", "far") })
	in(t, own, func() error {
		return byName("far", func(l netlink.Link) error {
			ns, err := topology.OpenNetns(other)
			if err != nil {
				return err
			}
			defer ns.Close()
			return netlink.LinkSetNsFd(l, ns.Fd())
		})
	})
	w := startWatch(t, own, topology.Config{Interfaces: []string{"v0"}, Netns: []string{other}, Linger: time.Minute})
	w.expect(t, "added v0", "synced")
	deleteNetns(t, other)
	w.expect(t, "removed v0") // its peer died with the namespace
}

// More changes than the socket holds: the difference must be reported all the same.
func TestResyncAfterOverflow(t *testing.T) {
	own := addNetns(t, "own")
	w := startWatch(t, own, topology.Config{Interfaces: []string{"v*"}, Linger: time.Minute},
		func(w *watch) { w.SetReceiveBuffer(4096) })
	w.expect(t, "synced")

	w.gate.Lock()
	in(t, own, func() error {
		for i := range 40 {
			if err := addVeth(fmt.Sprintf("v%d", i), fmt.Sprintf("p%d", i)); err != nil {
				return err
			}
		}
		for i := range 20 {
			if err := byName(fmt.Sprintf("v%d", i), netlink.LinkDel); err != nil {
				return err
			}
		}
		return addVeth("v0", "p0")
	})
	w.gate.Unlock()

	known := map[string]bool{}
	deadline := time.After(await.Patience)
	for len(known) != 21 || !known["v0"] || !known["v39"] {
		select {
		case e := <-w.events:
			switch e.Kind {
			case topology.Added:
				known[e.Link.Name] = true
			case topology.Removed:
				delete(known, e.Link.Name)
			}
		case <-deadline:
			t.Fatalf("after the overflow %d links are known: %v", len(known), known)
		}
	}
	if !strings.Contains(w.log.String(), "too many link events") {
		t.Errorf("the socket did not overflow, so the test shows nothing; log:\n%s", w.log.String())
	}
}

// Indices of more than 22 bits are watched like others; without a number for
// them, they are refused, and listed as such while they exist.
func TestLargeIndex(t *testing.T) {
	own := addNetns(t, "own")
	w := startWatch(t, own, topology.Config{Interfaces: []string{"v*"}, Linger: time.Minute})
	w.expect(t, "synced")
	const large = 5*(topology.MaxIfIndex+1) + 1 // of lo, but for the upper bits
	add := func(name string, index int) {
		t.Helper()
		in(t, own, func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.Index = name, index
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "p" + name})
		})
	}
	add("v0", large)
	l := w.expect(t, "added v0")[0].Link
	if l.IfIndex != large || l.Iface == flow.NewIface(0, 1) || w.IfIndex(l.Iface) != large {
		t.Errorf("link %+v, index %d", l, w.IfIndex(l.Iface))
	}
	if got, ok := w.Link(l.Iface); !ok || got.Name != "v0" {
		t.Errorf("registry has %+v", got)
	}
	if _, err := w.Counters(l.Iface); err != nil {
		t.Error(err)
	}
	if err := w.InNetns(l.Iface.Netns(), func() error { return byName("v0", func(netlink.Link) error { return nil }) }); err != nil {
		t.Error(err)
	}
	if g, err := w.Graph(); err != nil || len(g.Netns) != 1 {
		t.Errorf("graph of %v, %v", g.Netns, err)
	}

	w.UseUpNumbers(0)
	add("v1", 2*large)
	if e := w.expect(t, "refused v1")[0]; !errors.Is(e.Err, topology.ErrTooManyNetns) {
		t.Errorf("refused for %v", e.Err)
	}
	if got := w.Refused(); len(got) != 1 || got[0].Link.Name != "v1" {
		t.Errorf("refused %v", got)
	}
	in(t, own, func() error { return byName("v1", netlink.LinkDel) })
	await.True(t, "the end of a refusal whose link is gone", func() bool { return len(w.Refused()) == 0 })
}

func TestRefusesBadConfig(t *testing.T) {
	for _, cfg := range []topology.Config{
		{},
		{Interfaces: []string{"veth["}},
		{Interfaces: []string{""}},
		{Interfaces: []string{"*"}, Netns: []string{"[a"}},
		{Interfaces: []string{"*"}, Linger: -1},
	} {
		if _, err := topology.New(cfg, topology.Deps{}); err == nil {
			t.Errorf("New(%+v) took it", cfg)
		}
	}
	if err := topology.Default().Validate(); err != nil {
		t.Error(err)
	}
}
