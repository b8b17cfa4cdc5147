package pdm

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/marktest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// bulk is a transfer that must not stall: segments that are sent again show it.
func bulk(t testing.TB, from, to *lab.Host, addr netip.Addr, size int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := traffic.Bulk(ctx, from, to, traffic.BulkConfig{To: netip.AddrPortFrom(addr, 0), Bytes: size})
	if err != nil {
		t.Fatal(err)
	}
	if r.Sender.Retransmits > marktest.ResentMost(size) {
		t.Errorf("%d bytes took %v, %d segments were sent again", size, r.Duration, r.Sender.Retransmits)
	}
}

// A router marks what it sends itself, and nothing that passes it (RFC 8200
// section 4), unless the domain is closed; and no ICMPv6 error (RFC 4443 2.4).
func TestOnlyTheSourceMarks(t *testing.T) {
	for _, closed := range []bool{false, true} {
		l := datapathtest.NewLab(t, lab.Config{Topology: "chain", MTU: 1500})
		cfg := unlimited()
		cfg.ClosedDomain = closed
		alpha, athos, beta := l.Host("alpha"), l.Host("athos"), l.Host("beta")
		router := mark(t, athos, cfg, headroom.None) // its interface to alpha
		before := marktest.Faults(t, alpha)
		bulk(t, beta, alpha, alpha.Addr6(), 4<<20)
		// It ends at athos, which says so.
		if err := alpha.Do(func() error {
			c, err := net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(beta.Addr6(), 9)))
			if err != nil {
				return err
			}
			defer c.Close()
			raw, err := c.SyscallConn()
			if err != nil {
				return err
			}
			if ctl := raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_UNICAST_HOPS, 1)
			}); ctl != nil || err != nil {
				return fmt.Errorf("%w, %w", ctl, err)
			}
			_, err = c.Write(make([]byte, 1300))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		router.await(t, "icmp_error")
		s, err := router.marker.Stats()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("closed %t: %d marked, passed over %v", closed, s.Marked, router.unmarked())
		if closed != (s.Marked > 100) || closed != (router.unmarked()["transit"] == 0) {
			t.Errorf("closed %t: %d marked, passed over %v", closed, s.Marked, router.unmarked())
		}
		if moved := marktest.NewFaults(before, marktest.Faults(t, alpha)); len(moved) > 0 {
			t.Errorf("closed %t: packets that could not be used: %v", closed, moved)
		}
		// What the router sends itself is marked in any case.
		bulk(t, athos, alpha, alpha.Addr6(), 1<<20)
		if own, err := router.marker.Stats(); err != nil || own.Marked < s.Marked+10 {
			t.Errorf("closed %t: of its own packets %d were marked, %v", closed, own.Marked-s.Marked, err)
		}
	}
}

// await drains until packets were passed over for a reason.
func (m *markingHost) await(t testing.TB, reason string) {
	t.Helper()
	await.Success(t, func() error {
		if m.drain(t); m.unmarked()[reason] == 0 {
			return fmt.Errorf("none was passed over as %s: %v", reason, m.unmarked())
		}
		return nil
	})
}

// Segments of a burst in a tunnel have headers that the outer packet doesn't
// count: bursts of VXLAN stay as they are, and arrive.
func TestMarkedTunnels(t *testing.T) {
	const vxlanPort = 4789
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 1500})
	if err := l.SetOffloads(allOffloads, false); err != nil {
		t.Fatal(err)
	}
	hosts := [2]*lab.Host{l.Host("alpha"), l.Host("beta")}
	inner := [2]string{"fd00:1::1", "fd00:1::2"}
	for i, h := range hosts {
		marktest.Command(t, h, "ip", "link", "add", "vx", "type", "vxlan", "id", "7", "dstport", fmt.Sprint(vxlanPort), "local", h.Addr6().String(),
			"remote", hosts[1-i].Addr6().String(), "dev", h.Interfaces[0].Name)
		marktest.Command(t, h, "ip", "addr", "add", inner[i]+"/64", "dev", "vx", "nodad")
		marktest.Command(t, h, "ip", "link", "set", "vx", "up")
	}
	a, b := mark(t, hosts[0], unlimited(), headroom.None), mark(t, hosts[1], unlimited(), headroom.None)
	a.know(t, b.Addr6(), vxlanPort)
	b.know(t, a.Addr6(), vxlanPort)
	for i, h := range hosts {
		bulk(t, h, hosts[1-i], hosts[1-i].Addr6(), 1<<20) // shows how long packets arrive
		bulk(t, h, hosts[1-i], netip.MustParseAddr(inner[1-i]), 8<<20)
	}
	for _, m := range []*markingHost{a, b} {
		m.await(t, "burst_tunnel")
		s, err := m.marker.Stats()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d marked, passed over %v", m.Name, s.Marked, m.unmarked())
		if s.Marked == 0 {
			t.Errorf("%s marked no packet of the tunnel", m.Name)
		}
	}
}

// Where the stack knows a path MTU, or the path is as narrow as IPv6 allows,
// datagrams of fresh sockets arrive like unmarked ones.
func TestMarkedDatagramsOnAKnownPath(t *testing.T) {
	for _, narrow := range []int{1400, 1280} {
		l := datapathtest.NewLab(t, lab.Config{Topology: "chain", MTU: 1500})
		for _, ends := range [][2]string{{"athos", "to-porthos"}, {"porthos", "to-athos"}} {
			if err := l.Host(ends[0]).Do(func() error { return marktest.SetMTU(ends[1], narrow) }); err != nil {
				t.Fatal(err)
			}
		}
		alpha, beta := l.Host("alpha"), l.Host("beta")
		// idle: how long to wait for those that are lost.
		datagrams := func(size, count int, idle time.Duration) uint64 {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r, err := traffic.Datagrams(ctx, alpha, beta, traffic.DatagramConfig{
				To: netip.AddrPortFrom(beta.Addr6(), portB), Count: count, Size: size - 48, Flows: count, Interval: time.Millisecond, Idle: idle,
			})
			if err != nil {
				t.Fatal(err)
			}
			return uint64(r.Distinct)
		}
		datagrams(1500, 2, 300*time.Millisecond) // athos reports that they are too long
		if n := datagrams(narrow, 10, time.Minute); n != 10 {
			t.Fatalf("MTU %d: of 10 unmarked datagrams came %d", narrow, n)
		}
		a := mark(t, alpha, unlimited(), headroom.Interface)
		a.know(t, beta.Addr6(), portB)
		a.drain(t)
		before, err := a.marker.Stats()
		if err != nil {
			t.Fatal(err)
		}
		unproven := a.unmarked()["unproven"]
		for _, size := range []int{narrow, 1280, 1248} { // EDNS with 1232 bytes, a QUIC Initial with 1200
			if n := datagrams(size, 10, time.Minute); n != 10 {
				t.Errorf("MTU %d: of 10 datagrams of %d bytes came %d", narrow, size, n)
			}
		}
		a.drain(t)
		s, err := a.marker.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if s.Marked-before.Marked != 10 || a.unmarked()["unproven"]-unproven != 20 {
			t.Errorf("MTU %d: %d marked, before %d, passed over %v", narrow, s.Marked, before.Marked, a.unmarked())
		}
	}
}

// A frame that is sent raw with a tag in it, but as IPv6, leaves as it is: the
// kernel would make room elsewhere.
func TestRawFramesStayWhole(t *testing.T) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 1500})
	a, beta := mark(t, l.Host("alpha"), unlimited(), headroom.None), l.Host("beta")
	tagged := packet.Eth().VLAN(5).IPv6(hostA, hostB).UDP(portA, portB).Payload(40).Bytes()
	plain := packet.Eth().IPv6(hostA, hostB).UDP(portA, portB).Payload(40).Bytes()
	var in int
	if err := beta.Do(func() (err error) {
		in, err = packetSocket(beta.Interfaces[0].Name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(in)
	a.know(t, netip.MustParseAddr(hostB), portB)
	if err := a.Do(func() error {
		out, err := packetSocket(a.Interfaces[0].Name)
		if err != nil {
			return err
		}
		defer unix.Close(out)
		for _, f := range [][]byte{tagged, plain} {
			if err := unix.Sendto(out, f, 0, &unix.SockaddrLinklayer{Protocol: datapath.HostPort(unix.ETH_P_IPV6), Ifindex: a.index}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	untagged := append(bytes.Clone(tagged[:12]), tagged[16:]...) // the kernel takes the tag out
	whole, marked := false, false
	buf := make([]byte, 2048)
	for deadline := time.Now().Add(time.Minute); !(whole && marked) && time.Now().Before(deadline); {
		n, err := unix.Read(in, buf)
		if err != nil {
			continue // not yet
		}
		f := buf[:n]
		whole = whole || bytes.Equal(f, untagged)
		marked = marked || len(f) == len(plain)+16 && binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_IPV6 && f[20] == 60 && bytes.Equal(f[70:], plain[54:])
	}
	a.drain(t)
	if !whole || !marked || a.unmarked()["frame"] != 1 {
		t.Errorf("tagged frame came as it was: %t; plain one came marked: %t; passed over %v", whole, marked, a.unmarked())
	}
}

// packetSocket sends and receives whole frames; a read returns after a while.
func packetSocket(iface string) (int, error) {
	l, err := netlink.LinkByName(iface)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(datapath.HostPort(unix.ETH_P_ALL)))
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: datapath.HostPort(unix.ETH_P_ALL), Ifindex: l.Attrs().Index}); err != nil {
		unix.Close(fd)
		return 0, err
	}
	return fd, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100000})
}

// BIG TCP makes bursts whose length IPv6 can't tell: they go unmarked, and arrive.
func TestMarkedBigTCP(t *testing.T) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 1500})
	for _, h := range l.Hosts() {
		marktest.Command(t, h, "ip", "link", "set", "dev", h.Interfaces[0].Name, "gso_max_size", "185000", "gro_max_size", "185000")
	}
	a, b := mark(t, l.Host("alpha"), unlimited(), headroom.Interface), mark(t, l.Host("beta"), unlimited(), headroom.Interface)
	bulk(t, a.Host, b.Host, b.Addr6(), 32<<20)
	bulk(t, b.Host, a.Host, a.Addr6(), 32<<20)
	a.drain(t)
	s, err := a.marker.Stats()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d marked, passed over %v", s.Marked, a.unmarked())
	if s.Marked == 0 {
		t.Errorf("nothing was marked: %v", a.unmarked())
	}
}
