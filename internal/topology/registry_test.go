package topology_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/test/await"
)

// No number has two namespaces within the time that late records take, whatever
// the order of coming and going; and none is refused while one is free.
func TestNumbers(t *testing.T) {
	const linger = time.Minute
	rapid.Check(t, func(t *rapid.T) {
		var numbers topology.Numbers
		now := time.Unix(0, 0)
		live := map[uint32]bool{}
		left := map[uint32]time.Time{}
		take := func() {
			free := topology.MaxNetns - len(live)
			for _, at := range left {
				if now.Sub(at) < linger {
					free--
				}
			}
			n, err := topology.Take(&numbers, now, linger)
			switch {
			case err != nil && !errors.Is(err, topology.ErrTooManyNetns):
				t.Fatal(err)
			case (err == nil) != (free > 0):
				t.Fatalf("%d numbers are free, take says %v", free, err)
			case err != nil:
				return
			}
			at, used := left[n]
			if live[n] || used && now.Sub(at) < linger || n >= topology.MaxNetns {
				t.Fatalf("number %d was given out again", n)
			}
			delete(left, n)
			live[n] = true
		}
		for range rapid.IntRange(0, topology.MaxNetns).Draw(t, "at the start") {
			take()
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(*rapid.T) { take() },
			"leave": func(t *rapid.T) {
				for n := range live {
					topology.Release(&numbers, n, now)
					delete(live, n)
					left[n] = now
					return
				}
				t.Skip("none is live")
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(linger)).Draw(t, "for")))
			},
		})
	})
}

// A thousand and more namespaces in a row: numbers of those that are gone are
// used again only when they lingered out, and the refusal says so.
func TestNumbersRunOut(t *testing.T) {
	var numbers topology.Numbers
	start := time.Unix(0, 0)
	for range topology.MaxNetns {
		if _, err := topology.Take(&numbers, start, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := topology.Take(&numbers, start, time.Minute); !errors.Is(err, topology.ErrTooManyNetns) {
		t.Fatalf("number 1025: %v, want ErrTooManyNetns", err)
	}
	topology.Release(&numbers, 77, start)
	if _, err := topology.Take(&numbers, start.Add(59*time.Second), time.Minute); !errors.Is(err, topology.ErrTooManyNetns) {
		t.Fatalf("a number before it lingered out: %v, want ErrTooManyNetns", err)
	}
	if n, err := topology.Take(&numbers, start.Add(time.Minute), time.Minute); n != 77 || err != nil {
		t.Fatalf("after lingering out: %d, %v, want 77", n, err)
	}
}

func TestGoneLinksLingerOut(t *testing.T) {
	own := addNetns(t, "own")
	w := startWatch(t, own, topology.Config{Interfaces: []string{"v*"}, Linger: time.Nanosecond})
	w.expect(t, "synced")
	in(t, own, func() error { return addVeth("v0", "peer") })
	gone := w.expect(t, "added v0")[0].Link.Iface
	in(t, own, func() error { return byName("v0", netlink.LinkDel) })
	w.expect(t, "removed v0")
	// Forgetting happens when the next one goes.
	in(t, own, func() error { return errors.Join(addVeth("v1", "peer"), byName("v1", netlink.LinkDel)) })
	w.expect(t, "added v1", "removed v1")
	await.True(t, "the end of a link that lingered out", func() bool {
		_, known := w.Link(gone)
		return !known
	})
}

// ip is the judge of the counters.
func TestCounters(t *testing.T) {
	own, other := addNetns(t, "own"), addNetns(t, "other")
	in(t, other, func() error {
		return errors.Join(addVeth("v0", "v1"), byName("v0", netlink.LinkSetUp), byName("v1", netlink.LinkSetUp))
	})
	w := startWatch(t, own, topology.Config{Interfaces: []string{"v0"}, Netns: []string{other}, Linger: time.Minute})
	v0 := w.expect(t, "added other/v0", "synced")[0].Link.Iface
	// IPv6 announces itself on the new link: something is sent.
	await.True(t, "counters at rest", func() bool {
		before, err := w.Counters(v0)
		if err != nil {
			t.Fatal(err)
		}
		want := ipCounters(t, other, "v0")
		after, err := w.Counters(v0)
		if err != nil {
			t.Fatal(err)
		}
		if before != after || before.TxPackets == 0 {
			return false
		}
		if diff := cmp.Diff(want, before); diff != "" {
			t.Errorf("counters (-ip +registry):\n%s", diff)
		}
		return true
	})
	if _, err := w.Counters(flow.NewIface(0, 4000)); err == nil {
		t.Error("counters of an interface that does not exist")
	}
	if _, err := w.Counters(flow.NewIface(1000, 1)); err == nil {
		t.Error("counters of a namespace that does not exist")
	}
}

func ipCounters(t *testing.T, netns, link string) topology.Counters {
	t.Helper()
	host := lab.Host{Name: netns, Netns: netns}
	out, err := host.Run(t.Context(), "ip", "-j", "-s", "link", "show", link)
	if err != nil {
		t.Fatal(err)
	}
	var said []struct {
		Stats64 struct {
			Rx, Tx struct{ Packets, Bytes, Dropped uint64 }
		}
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil || len(said) != 1 {
		t.Fatalf("ip said %q: %v", out, err)
	}
	rx, tx := said[0].Stats64.Rx, said[0].Stats64.Tx
	return topology.Counters{
		RxPackets: rx.Packets, RxBytes: rx.Bytes, RxDropped: rx.Dropped,
		TxPackets: tx.Packets, TxBytes: tx.Bytes, TxDropped: tx.Dropped,
	}
}

func TestGraph(t *testing.T) {
	own, other, hidden := addNetns(t, "own"), addNetns(t, "other"), addNetns(t, "hidden")
	in(t, own, func() error {
		bridge := netlink.NewLinkAttrs()
		bridge.Name = "br0"
		vxlan := netlink.NewLinkAttrs()
		vxlan.Name = "vx0"
		return errors.Join(
			netlink.LinkAdd(&netlink.Bridge{LinkAttrs: bridge}),
			addVeth("v0", "v0-peer"), addVeth("v1", "v1-peer"),
			moveTo("v0-peer", other), moveTo("v1-peer", hidden),
			byName("br0", func(br netlink.Link) error {
				return byName("v0", func(v netlink.Link) error { return netlink.LinkSetMasterByIndex(v, br.Attrs().Index) })
			}),
			byName("v1", func(v netlink.Link) error {
				addr, err := netlink.ParseAddr("192.0.2.1/24")
				return errors.Join(err, netlink.AddrAdd(v, addr), netlink.LinkAdd(&netlink.Vxlan{
					LinkAttrs: vxlan, VxlanId: 5, VtepDevIndex: v.Attrs().Index, Port: 4789,
				}))
			}),
		)
	})
	w := startWatch(t, own, topology.Config{Interfaces: []string{"v0"}, Netns: []string{other}, Linger: time.Minute})
	w.expect(t, "added v0", "synced")
	g, err := w.Graph()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range g.Nodes {
		if n.Kind == "loopback" {
			continue
		}
		s := n.Kind
		for what, ref := range map[string]*topology.Ref{"peer": n.Peer, "parent": n.Parent, "master": n.Master} {
			if ref != nil {
				s += fmt.Sprintf(" %s %s/%s known %v", what, ref.Netns, ref.Name, ref.Known)
			}
		}
		if n.Name == "v1" {
			s += fmt.Sprint(" ", n.Addresses)
		}
		got[n.Link.String()] = s
	}
	// v0 has both a master and a peer, in any order.
	if s := got["v0"]; s != "veth peer "+other+"/v0-peer known true master /br0 known true" &&
		s != "veth master /br0 known true peer "+other+"/v0-peer known true" {
		t.Errorf("v0 is %s", s)
	}
	delete(got, "v0")
	want := map[string]string{
		"br0":              "bridge",
		"v1":               "veth peer / known false [192.0.2.1/24]",
		"vx0":              "vxlan parent /v1 known true",
		other + "/v0-peer": "veth peer /v0 known true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("graph (-want +got):\n%s", diff)
	}
	if data, err := json.Marshal(g); err != nil || len(data) == 0 {
		t.Errorf("graph as JSON: %s, %v", data, err)
	}
	checkWiring(t, own, other, w)
}

// checkWiring finds the graph's links as ways of packets, and links that are added
// to a bridge later.
// TestNeighbours: the tables of the kernel, without what is no host on a link, and what touches a graph.
func TestNeighbours(t *testing.T) {
	own, other := addNetns(t, "own"), addNetns(t, "other")
	vxlan, bridge, ipip := netlink.NewLinkAttrs(), netlink.NewLinkAttrs(), netlink.NewLinkAttrs()
	vxlan.Name, bridge.Name, ipip.Name = "vx0", "br0", "tun7"
	mac := func(s string) net.HardwareAddr { m, _ := net.ParseMAC(s); return m }
	in(t, own, func() error {
		return errors.Join(
			addVeth("v0", "v0-peer"), moveTo("v0-peer", other),
			netlink.LinkAdd(&netlink.Bridge{LinkAttrs: bridge}),
			byName("br0", func(br netlink.Link) error {
				return byName("v0", func(v netlink.Link) error {
					return errors.Join(netlink.LinkSetMasterByIndex(v, br.Attrs().Index), netlink.LinkSetUp(v), netlink.LinkSetUp(br))
				})
			}),
			netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: vxlan, VxlanId: 5, Port: 4789}),
		)
	})
	in(t, other, func() error { return byName("v0-peer", netlink.LinkSetUp) })
	offered := true
	in(t, own, func() error {
		err := netlink.LinkAdd(&netlink.Iptun{LinkAttrs: ipip, Local: net.IPv4(192, 0, 2, 1), Remote: net.IPv4(192, 0, 2, 2)})
		if errors.Is(err, unix.EOPNOTSUPP) { // this kernel has no such tunnel
			offered = false
			return nil
		}
		return err
	})
	w := startWatch(t, own, topology.Config{Interfaces: []string{"v0"}, Netns: []string{other}, Linger: time.Minute})
	w.expect(t, "added v0", "synced")
	before := w.Touched()
	neigh := func(link string, n netlink.Neigh) func() error {
		return func() error {
			return byName(link, func(l netlink.Link) error { n.LinkIndex = l.Attrs().Index; return netlink.NeighAppend(&n) })
		}
	}
	for _, add := range []func() error{
		neigh("br0", netlink.Neigh{Family: unix.AF_INET, State: unix.NUD_REACHABLE, IP: net.IPv4(192, 0, 2, 7), HardwareAddr: mac("02:00:00:00:01:01")}),
		neigh("br0", netlink.Neigh{Family: unix.AF_INET6, State: unix.NUD_STALE, IP: net.ParseIP("2001:db8::7"), HardwareAddr: mac("02:00:00:00:01:01")}),
		neigh("br0", netlink.Neigh{Family: unix.AF_INET, State: unix.NUD_FAILED, IP: net.IPv4(192, 0, 2, 8)}),
		neigh("v0", netlink.Neigh{Family: unix.AF_BRIDGE, State: unix.NUD_REACHABLE, Flags: unix.NTF_MASTER, HardwareAddr: mac("02:00:00:00:01:01")}),
		neigh("vx0", netlink.Neigh{Family: unix.AF_BRIDGE, State: unix.NUD_PERMANENT, Flags: unix.NTF_SELF, IP: net.IPv4(198, 51, 100, 2), HardwareAddr: mac("02:00:00:00:02:02")}),
		neigh("vx0", netlink.Neigh{Family: unix.AF_BRIDGE, State: unix.NUD_PERMANENT, Flags: unix.NTF_SELF, IP: net.IPv4(198, 51, 100, 3), HardwareAddr: mac("00:00:00:00:00:00")}),
	} {
		await.Success(t, func() error { return topology.InNetns(own, add) }) // a port learns some time after it is up
	}
	await.True(t, "a notice of neighbours", func() bool { return w.Touched() > before })
	g, err := w.Graph()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range g.Neighbours {
		if n.MAC == "" || strings.HasPrefix(n.MAC, "02:00:00:00:0") { // not those of the pair, which the kernel learns by itself
			got = append(got, fmt.Sprintf("%s %s %v", n.Source, n.MAC, n.Addr))
		}
	}
	slices.Sort(got)
	want := []string{
		"arp 02:00:00:00:01:01 192.0.2.7", "fdb 02:00:00:00:01:01 invalid IP", "ndp 02:00:00:00:01:01 2001:db8::7",
		"tunnel  198.51.100.3", "tunnel 02:00:00:00:02:02 198.51.100.2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if offered && !slices.ContainsFunc(g.Nodes, func(n topology.Node) bool {
		return n.Name == "tun7" && n.Kind == "ipip" && n.Remote.String() == "192.0.2.2"
	}) {
		t.Error("the tunnel is no node")
	}
	traffic, err := w.Traffic()
	if err != nil || len(traffic) != len(g.Nodes) {
		t.Errorf("counters of %d interfaces of %d: %v", len(traffic), len(g.Nodes), err)
	}
}

func checkWiring(t *testing.T, own, other string, w *watch) {
	t.Helper()
	ports := map[string]flow.Port{}
	for _, l := range w.Links() {
		ports[l.String()] = flow.Port{Netns: l.Netns, IfIndex: l.IfIndex}
	}
	wiring, err := w.Wiring()
	if err != nil {
		t.Fatal(err)
	}
	v0, far := ports["v0"], ports[other+"/v0-peer"]
	if wiring.Peers[v0] != far || wiring.Peers[far] != v0 || wiring.Peers[ports["lo"]] != ports["lo"] {
		t.Errorf("peers %v of %v", wiring.Peers, ports)
	}
	if _, ok := wiring.Peers[ports["v1"]]; ok {
		t.Error("v1 has a peer in a namespace that is not watched")
	}
	if !slices.Equal(wiring.Uppers[v0], []flow.Port{ports["br0"]}) || !slices.Equal(wiring.Uppers[ports["v1"]], []flow.Port{ports["vx0"]}) {
		t.Errorf("uppers %v of %v", wiring.Uppers, ports)
	}
	before := w.Changes()
	in(t, own, func() error {
		return byName("vx0", func(vx netlink.Link) error {
			return byName("br0", func(br netlink.Link) error { return netlink.LinkSetMasterByIndex(vx, br.Attrs().Index) })
		})
	})
	await.True(t, "a change, as a link was added to a bridge", func() bool { return w.Changes() != before })
	if wiring, err = w.Wiring(); err != nil || !slices.Equal(wiring.Uppers[ports["v1"]], []flow.Port{ports["vx0"], ports["br0"]}) {
		t.Errorf("uppers %v of %v: %v", wiring.Uppers, ports, err)
	}
}

func moveTo(link, netns string) error {
	ns, err := topology.OpenNetns(netns)
	if err != nil {
		return err
	}
	defer ns.Close()
	return byName(link, func(l netlink.Link) error { return netlink.LinkSetNsFd(l, ns.Fd()) })
}
