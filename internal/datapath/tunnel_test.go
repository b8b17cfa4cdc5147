package datapath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/capture"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/packet"
)

const etherHeader = 14

// tunnelKinds are the tunnels that Linux builds GSO frames for; not every kernel
// has all of them.
func tunnelKinds(under netlink.Link, a, b *lab.Host) map[string]netlink.Link {
	attrs := netlink.LinkAttrs{Name: "tun"}
	index := under.Attrs().Index
	a4, b4 := net.IP(a.Addr4().AsSlice()), net.IP(b.Addr4().AsSlice())
	a6, b6 := net.IP(a.Addr6().AsSlice()), net.IP(b.Addr6().AsSlice())
	vxlan := func(src, dst net.IP, port int) netlink.Link {
		return &netlink.Vxlan{LinkAttrs: attrs, VxlanId: 7, SrcAddr: src, Group: dst, Port: port, VtepDevIndex: index, Learning: true}
	}
	return map[string]netlink.Link{
		"vxlan over ipv4":               vxlan(a4, b4, packet.PortVXLAN),
		"vxlan over ipv6":               vxlan(a6, b6, packet.PortVXLAN),
		"vxlan over ipv4, another port": vxlan(a4, b4, 8472),
		"geneve":                        &netlink.Geneve{LinkAttrs: attrs, ID: 7, Remote: b4},
		"gre":                           &netlink.Gretun{LinkAttrs: attrs, Local: a4, Remote: b4, IKey: 7, OKey: 7, IFlags: 0x2000, OFlags: 0x2000},
		"gretap":                        &netlink.Gretap{LinkAttrs: attrs, Local: a4, Remote: b4},
		"ip6gre":                        &netlink.Gretun{LinkAttrs: attrs, Local: a6, Remote: b6},
		"ipip":                          &netlink.Iptun{LinkAttrs: attrs, Local: a4, Remote: b4},
		"sit":                           &netlink.Sittun{LinkAttrs: attrs, Local: a4, Remote: b4},
		"ip6tnl":                        &netlink.Ip6tnl{LinkAttrs: attrs, Local: a6, Remote: b6},
	}
}

// TestTunnelBursts: TCP and UDP bursts through a tunnel, with only the outer flow
// recorded, are counted as they are on the wire: the interface below has no
// segmentation offload, so that its own counters are those of the segments. The
// receiver merges them again (GRO).
func TestTunnelBursts(t *testing.T) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 1500})
	a, b := l.Hosts()[0], l.Hosts()[1]
	for _, h := range l.Hosts() {
		must(t, h.SetFeatures(h.Interfaces[0].Name, false, "tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-udp-segmentation"))
		must(t, h.SetFeatures(h.Interfaces[0].Name, true, "rx-gro"))
	}
	sides := []*underlay{newUnderlay(t, a), newUnderlay(t, b)}
	tested := 0
	for kind := range tunnelKinds(sides[0].link, a, b) {
		made, err := makeTunnels(t, kind, a, b)
		if errors.Is(err, unix.EOPNOTSUPP) {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		tested++
		for _, s := range sides {
			s.begin(t)
		}
		const size = 1 << 20
		sendThrough(t, a, b, made, size)
		for i, s := range sides {
			s.check(t, fmt.Sprintf("%s, host %d", kind, i))
		}
		for _, h := range l.Hosts() {
			must(t, h.Do(func() error {
				l, err := netlink.LinkByName("tun")
				return errors.Join(err, netlink.LinkDel(l))
			}))
		}
	}
	if tested == 0 {
		t.Error("no tunnel at all could be made")
	}
	t.Logf("%d kinds of tunnels", tested)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// makeTunnels connects the hosts, and returns the address of the second one inside.
func makeTunnels(t testing.TB, kind string, a, b *lab.Host) (netip.Addr, error) {
	t.Helper()
	inside := "10.77.0."
	if kind == "sit" {
		inside = "fd77::"
	}
	for i, pair := range [][2]*lab.Host{{a, b}, {b, a}} {
		err := pair[0].Do(func() error {
			under, err := netlink.LinkByName(pair[0].Interfaces[0].Name)
			if err != nil {
				return err
			}
			if err := netlink.LinkAdd(tunnelKinds(under, pair[0], pair[1])[kind]); err != nil {
				return err
			}
			l, err := netlink.LinkByName("tun")
			if err != nil {
				return err
			}
			address := fmt.Sprintf("%s%d/24", inside, i+1)
			if kind == "sit" {
				address = fmt.Sprintf("%s%d/64", inside, i+1)
			}
			addr, err := netlink.ParseAddr(address)
			if err != nil {
				return err
			}
			addr.Flags = unix.IFA_F_NODAD
			return errors.Join(netlink.AddrAdd(l, addr), netlink.LinkSetUp(l))
		})
		if err != nil {
			return netip.Addr{}, err
		}
	}
	return netip.MustParseAddr(inside + "2"), nil
}

// sendThrough sends bytes by TCP, and some bursts by UDP.
func sendThrough(t testing.TB, a, b *lab.Host, to netip.Addr, size int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var listener net.Listener
	must(t, b.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(to, 7000).String())
		return err
	}))
	defer listener.Close()
	received := make(chan error, 1)
	go func() {
		c, err := listener.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, c)
			err = errors.Join(err, c.Close())
		}
		received <- err
	}()
	must(t, a.Do(func() error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", netip.AddrPortFrom(to, 7000).String())
		if err != nil {
			return err
		}
		_, err = c.Write(make([]byte, size))
		return errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}))
	select {
	case err := <-received:
		must(t, err)
	case <-ctx.Done():
		t.Fatal("the transfer did not end")
	}
	must(t, a.Do(func() error {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 7001)))
		if err != nil {
			return err
		}
		defer c.Close()
		raw, err := c.SyscallConn()
		if err != nil {
			return err
		}
		failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 1000) })
		for range 20 {
			_, _ = c.Write(make([]byte, 9900)) // port unreachable comes back for some
		}
		return errors.Join(failed, err)
	}))
}

// underlay is the interface below a tunnel, with probes and its own counters.
type underlay struct {
	host     *lab.Host
	link     netlink.Link
	probes   map[string]flow.Probe
	base     *netlink.LinkStatistics
	reported map[string]flow.Uncounted // sums, by probe and direction
}

func newUnderlay(t testing.TB, h *lab.Host) *underlay {
	t.Helper()
	u := &underlay{host: h, probes: map[string]flow.Probe{}}
	u.link = u.look(t)
	iface := flow.NewIface(0, uint32(u.link.Attrs().Index))
	for name, walk := range map[string]bool{"asks the kernel": false, "walks": true} {
		d := load(t, Config{MaxEntries: 4096, WalkOnly: walk})
		_, err := d.Attach(Target{Iface: iface, Name: u.link.Attrs().Name, Do: h.Do})
		must(t, err)
		u.probes[name] = d
	}
	c := capture.New(capture.Config{MaxEntries: 4096, RingSize: 16 << 20}, capture.Deps{})
	must(t, c.Load())
	t.Cleanup(func() { must(t, c.Close()) })
	must(t, c.Attach(capture.Target{Iface: iface, Name: u.link.Attrs().Name, Do: h.Do}))
	u.probes["packet socket"] = c
	return u
}

func (u *underlay) look(t testing.TB) (l netlink.Link) {
	t.Helper()
	must(t, u.host.Do(func() (err error) {
		l, err = netlink.LinkByName(u.host.Interfaces[0].Name)
		return err
	}))
	return l
}

// begin forgets what was counted, at a moment when nothing is.
func (u *underlay) begin(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		before := *u.look(t).Attrs().Statistics
		u.reported = map[string]flow.Uncounted{}
		for name, p := range u.probes {
			must(t, p.Drain(func(*flow.Delta) {}))
			u.uncounted(t, name, p)
		}
		u.base = u.look(t).Attrs().Statistics
		if *u.base == before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the link is never quiet")
		}
	}
}

// uncounted are packets and bytes in no flow, since the last call.
func (u *underlay) uncounted(t testing.TB, name string, p flow.Probe) (out [2]flow.Counts) {
	t.Helper()
	list, err := p.Uncounted()
	must(t, err)
	var sums [2]flow.Uncounted
	for _, r := range list {
		sums[r.Direction].Packets += r.Packets
		sums[r.Direction].Bytes += r.Bytes
	}
	for direction := range sums {
		key := fmt.Sprint(name, direction)
		out[direction].Packets = sums[direction].Packets - u.reported[key].Packets
		out[direction].WireBytes = sums[direction].Bytes - u.reported[key].Bytes
		u.reported[key] = sums[direction]
	}
	return out
}

// check waits until the probes have what the interface has.
func (u *underlay) check(t testing.TB, what string) {
	t.Helper()
	sums := map[string]*[2]flow.Counts{}
	for name := range u.probes {
		sums[name] = new([2]flow.Counts)
	}
	var wrong []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		wrong = nil
		for name, p := range u.probes {
			must(t, p.Drain(func(d *flow.Delta) { sums[name][d.Direction].Add(&d.Counts) }))
			for direction, c := range u.uncounted(t, name, p) {
				sums[name][direction].Add(&c)
			}
		}
		now := u.look(t).Attrs().Statistics
		want := [2][2]uint64{
			flow.Ingress: {now.RxPackets - u.base.RxPackets, now.RxBytes - u.base.RxBytes},
			flow.Egress:  {now.TxPackets - u.base.TxPackets, now.TxBytes - u.base.TxBytes},
		}
		for name, s := range sums {
			for direction, c := range s {
				// A veth with GRO counts no link headers.
				if got := [2]uint64{c.Packets, c.WireBytes - c.Packets*etherHeader}; got != want[direction] {
					wrong = append(wrong, fmt.Sprintf("%s, %v: %d packets, %d bytes; the interface has %d, %d",
						name, flow.Direction(direction), got[0], got[1], want[direction][0], want[direction][1]))
				}
			}
		}
		if wrong == nil {
			break
		}
	}
	for _, w := range wrong {
		t.Errorf("%s: %s", what, w)
	}
	// Otherwise nothing was shown: both hosts see more packets than frames.
	both := sums["asks the kernel"]
	frames, packets := both[0].Frames+both[1].Frames, both[0].Packets+both[1].Packets
	if frames*3 > packets*2 {
		t.Errorf("%s: %d frames of %d packets: there were few bursts", what, frames, packets)
	}
}
