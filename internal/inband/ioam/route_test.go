package ioam

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// transfer sends bytes over TCP, each segment with a Hop-by-Hop header, and compares what arrives.
func transfer(t testing.TB, from, to *lab.Host, header []byte, size int) {
	t.Helper()
	transferWith(t, from, to, unix.IPV6_HOPOPTS, header, size)
}

// transferWith does so with a header that an option of the socket sets.
func transferWith(t testing.TB, from, to *lab.Host, option int, header []byte, size int) {
	t.Helper()
	var listener net.Listener
	if err := to.Do(func() (err error) {
		listener, err = net.Listen("tcp6", netip.AddrPortFrom(to.Addr6(), 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	received := make(chan error, 1)
	content := bytes.Repeat([]byte("what goes in comes out, "), size/24)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			received <- err
			return
		}
		defer c.Close()
		sum := sha256.New()
		n, err := io.Copy(sum, c)
		if want := sha256.Sum256(content); err == nil && !bytes.Equal(sum.Sum(nil), want[:]) {
			err = fmt.Errorf("%d other bytes of %d", n, len(content))
		}
		received <- err
	}()
	dialer := net.Dialer{Timeout: 20 * time.Second, Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if len(header) == 0 {
			return nil
		}
		return errors.Join(raw.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_IPV6, option, string(header))
		}), err)
	}}
	if err := from.Do(func() error {
		c, err := dialer.Dial("tcp6", listener.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			return err
		}
		_, err = c.Write(content)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-received:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the transfer does not end")
	}
}

// faults are counters of what a host could not use, and of what it sent again.
func faults(t testing.TB, h *lab.Host) (out string) {
	t.Helper()
	if err := h.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp6")
		for _, line := range strings.Split(string(text), "\n") {
			if f := strings.Fields(line); len(f) == 2 && f[1] != "0" && (strings.Contains(f[0], "Csum") || strings.Contains(f[0], "Error") || strings.Contains(f[0], "TooBig") || strings.Contains(f[0], "Frag")) {
				out += line + "\n"
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// route is a chain where porthos, a router, ends spaceA, and beta, a host, spaceB.
func route(t *testing.T) (l *lab.Lab, router, host *Registrar) {
	l = labtest.New(t, lab.Config{Topology: "chain", MTU: 1500})
	n := removing()
	n.Interfaces[0].Name, n.Interfaces[1].Name = "to-athos", "to-aramis"
	router = attachNode(t, l.Host("porthos"), Config{Time: wire.POSIX, Transit: TransitTC, Border: BorderDrop}, n)
	n = node()
	n.Namespaces[1].Remove = true
	n.Interfaces = []Interface{{Name: "to-aramis", ID: 5, WideID: 5, Role: RoleBoth}}
	host = attachNode(t, l.Host("beta"), Config{Time: wire.POSIX, Transit: TransitTC, Border: BorderDrop}, n)
	return l, router, host
}

func mustTrace(t testing.TB, ns uint16, space int) *wire.Trace {
	t.Helper()
	tr, err := wire.NewTrace(ns, 0xD40000, space)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// A TCP transfer loses nothing where a router removes one option of the header and forwards, and a
// host removes the rest and delivers, with offloads and without; then tunnels end at the router, those of a
// sender and those of another router.
func TestRemoveOnRoute(t *testing.T) {
	l, router, host := route(t)
	header, err := wire.AppendHeader(nil, 0, mustTrace(t, spaceA, 60), mustTrace(t, spaceB, 64))
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		if err := l.SetOffloads(lab.VethDefault, on); err != nil {
			t.Fatal(err)
		}
		transfer(t, l.Host("alpha"), l.Host("beta"), header, 4<<20)
	}
	for name, r := range map[string]*Registrar{"router": router, "host": host} {
		s, err := r.Stats()
		if err != nil || s.Removed < 50 {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if counts, err := r.Counts(); err != nil || len(counts) > 0 {
			t.Errorf("%s: %+v, %v", name, counts, err)
		}
	}
	for _, h := range l.Hosts() {
		if f := faults(t, h); f != "" {
			t.Errorf("%s:\n%s", h.Name, f)
		}
	}
	tunnels(t, l, router)
	wraps(t, l, router)
}

// tunnels sends packets of alpha in a tunnel that ends at porthos, with every combination of ECN.
func tunnels(t *testing.T, l *lab.Lab, router *Registrar) {
	t.Helper()
	athos, porthos, beta := l.Host("athos"), l.Host("porthos"), l.Host("beta")
	var to *net.UDPConn
	if err := beta.Do(func() (err error) {
		to, err = net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(beta.Addr6(), 0)))
		if err != nil {
			return err
		}
		raw, err := to.SyscallConn()
		if err != nil {
			return err
		}
		return errors.Join(raw.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1))
		}), err)
	}); err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	port := uint16(to.LocalAddr().(*net.UDPAddr).Port)
	header, err := wire.AppendHeader(nil, 41, mustTrace(t, spaceA, 60), mustTrace(t, unknown, 20))
	if err != nil {
		t.Fatal(err)
	}
	sender := labtest.NewSender(t, athos, "to-porthos")
	link := append(append(append([]byte{}, linkOf(t, porthos, "to-athos").HardwareAddr...), linkOf(t, athos, "to-porthos").HardwareAddr...), 0x86, 0xDD)
	end := addressOf(t, porthos, "to-athos")
	ecn := func(outer, inner int, destination string) []byte {
		b := packet.IPv6(l.Host("alpha").Addr6().String(), beta.Addr6().String()).TTL(40).TOS(uint8(0x40|inner)).UDP(1000, port)
		in := b.Raw([]byte{byte(outer), byte(inner)}).Bytes()
		out := packet.IPv6(athos.Addr6().String(), destination).TTL(9).TOS(uint8(outer)).Raw(append(bytes.Clone(header), in...)).Bytes()
		out[6] = 0
		return append(bytes.Clone(link), out...)
	}
	// RFC 6040 section 4.2: rows are what is inside, columns outside; Not-ECT, ECT(1), ECT(0), CE.
	want := [4][4]int{{0, 0, 0, -1}, {1, 1, 1, 3}, {2, 1, 2, 3}, {3, 3, 3, 3}}
	for inner, row := range want {
		for outer, result := range row {
			if err := sender.Send(ecn(outer, inner, end)); err != nil {
				t.Fatal(err)
			}
			if result < 0 {
				continue // the next one comes instead
			}
			got, oob := make([]byte, 16), make([]byte, 128)
			_ = to.SetReadDeadline(time.Now().Add(10 * time.Second))
			n, m, _, _, err := to.ReadMsgUDP(got, oob)
			if err != nil {
				t.Fatalf("inner %d, outer %d: %v", inner, outer, err)
			}
			messages, err := unix.ParseSocketControlMessage(oob[:m])
			if err != nil || len(messages) != 2 {
				t.Fatalf("%d messages, %v", len(messages), err)
			}
			class, limit := 0, 0
			for _, one := range messages {
				if one.Header.Type == unix.IPV6_TCLASS {
					class = int(one.Data[0])
				} else {
					limit = int(one.Data[0])
				}
			}
			if n != 2 || int(got[0]) != outer || int(got[1]) != inner || class != 0x40|result || limit != 38 {
				t.Errorf("inner %d, outer %d: % x, traffic class %#x, hop limit %d", inner, outer, got[:n], class, limit)
			}
		}
	}
	s, err := router.Stats()
	if err != nil || s.Unwrapped != 15 {
		t.Errorf("%+v, %v", s, err)
	}
	if why := reasons(t, router); why["congestion"] != 1 {
		t.Errorf("%v", why)
	}
	guardsTunnels(t, router, netip.MustParseAddr(athos.Addr6().String()), func() error { return sender.Send(ecn(0, 0, end)) }, to)
}

// guardsTunnels: outer headers are removed only of packets from where tunnels may come from.
func guardsTunnels(t *testing.T, router *Registrar, source netip.Addr, send func() error, to *net.UDPConn) {
	t.Helper()
	n := removing()
	n.Interfaces[0].Name, n.Interfaces[1].Name = "to-athos", "to-aramis"
	defer func() {
		if err := router.Apply(n); err != nil {
			t.Error(err)
		}
	}()
	flipped := source.As16()
	flipped[15] ^= 1
	sibling, other := netip.AddrFrom16(flipped), netip.MustParsePrefix("2001:db8:ffff::/48")
	for _, c := range []struct {
		from []netip.Prefix
		ends bool
	}{
		{[]netip.Prefix{netip.PrefixFrom(source, 128)}, true},
		{[]netip.Prefix{netip.PrefixFrom(sibling, 128)}, false},
		{[]netip.Prefix{other, netip.PrefixFrom(sibling, 127)}, true},
		{[]netip.Prefix{other}, false},
		{slices.Repeat([]netip.Prefix{other}, MaxTunnelsFrom), false},
		{append(slices.Repeat([]netip.Prefix{other}, MaxTunnelsFrom-1), netip.PrefixFrom(source, 1)), true},
	} {
		guarded := n
		guarded.TunnelsFrom = c.from
		if err := router.Apply(guarded); err != nil {
			t.Fatal(err)
		}
		before, refused := stats(t, router), reasons(t, router)["tunnel_from"]
		if err := send(); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the options to be removed", func() bool { return stats(t, router).Removed > before.Removed })
		if c.ends {
			_ = to.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := to.Read(make([]byte, 16)); err != nil {
				t.Errorf("from %v: %v", c.from, err)
			}
			refused--
		}
		s, now := stats(t, router), reasons(t, router)["tunnel_from"]
		if s.Unwrapped-before.Unwrapped != map[bool]uint64{true: 1}[c.ends] || now != refused+1 {
			t.Errorf("from %v: unwrapped %d, before %d; refused %d, before %d", c.from, s.Unwrapped, before.Unwrapped, now, refused)
		}
	}
	tooMany := n
	tooMany.TunnelsFrom = make([]netip.Prefix, MaxTunnelsFrom+1)
	if err := router.Apply(tooMany); err == nil {
		t.Error("more prefixes than there is space for")
	}
}

func stats(t *testing.T, r *Registrar) Stats {
	t.Helper()
	s, err := r.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// addressOf is the global IPv6 address of an interface.
func addressOf(t testing.TB, h *lab.Host, name string) string {
	t.Helper()
	for _, i := range h.Interfaces {
		if i.Name == name {
			return i.Addr6.Addr().String()
		}
	}
	t.Fatalf("%s has no %s", h.Name, name)
	return ""
}

// wraps has athos put what it forwards behind an outer header to porthos, which removes it: TCP transfers lose
// nothing, whoever cuts the bursts, and what does not fit the MTU passes as it is.
func wraps(t *testing.T, l *lab.Lab, router *Registrar) {
	t.Helper()
	athos, porthos := l.Host("athos"), l.Host("porthos")
	const exit = "to-porthos"
	n := node()
	n.Interfaces = []Interface{
		{Name: "to-alpha", ID: 1, WideID: 1, Role: RoleIngress},
		{Name: exit, ID: 2, WideID: 2, Role: RoleBoth},
	}
	tunnel := func(end string) Node {
		n.Insertions = []Insertion{{
			Name: "tunnel", Take: 1, Of: 1, Policy: policy.Policy{To: netip.PrefixFrom(l.Host("beta").Addr6(), 128), Interface: exit},
			Tunnel:  &Tunnel{Source: netip.MustParseAddr(addressOf(t, athos, exit)), Destination: netip.MustParseAddr(end)},
			Options: []wire.Body{mustTrace(t, spaceA, 64), &wire.E2E{Namespace: spaceA, Type: wire.E2ESequence64}},
		}}
		return n
	}
	r := attachNode(t, athos, Config{Time: wire.POSIX, Transit: TransitTC}, tunnel(addressOf(t, porthos, "to-athos")))
	if err := l.SetOffloads(lab.VethDefault, true); err != nil {
		t.Fatal(err)
	}
	// Each packet has two options; a reading may be between the counters of one.
	settled := func(from Stats) (s Stats) {
		t.Helper()
		await.True(t, "two options of each tunnelled packet to be counted", func() bool {
			var err error
			if s, err = router.Stats(); err != nil {
				t.Fatal(err)
			}
			return s.Removed-from.Removed == 2*(s.Unwrapped-from.Unwrapped)
		})
		return s
	}
	before, err := router.Stats()
	if err != nil {
		t.Fatal(err)
	}
	// What the interface leaves to the stack, one after the other.
	for _, off := range [][]string{nil, {"tx-ipxip6-segmentation"}, {"tx-tcp6-segmentation"}, {"tx-checksum-ip-generic"}, {"tx-generic-segmentation"}} {
		if err := athos.SetFeatures(exit, false, off...); err != nil {
			t.Fatal(err)
		}
		transfer(t, l.Host("alpha"), l.Host("beta"), nil, 4<<20)
		after := settled(before)
		if after.Unwrapped-before.Unwrapped < 20 {
			t.Errorf("without %v: %+v, before %+v", off, after, before)
		}
		if why := reasons(t, r); !onlyWaits(why) {
			t.Errorf("without %v: %v", off, why)
		}
		before = after
	}
	if err := l.SetOffloads(lab.VethDefault, false); err != nil {
		t.Fatal(err)
	}
	transfer(t, l.Host("alpha"), l.Host("beta"), nil, 4<<20)
	if why := reasons(t, r); !onlyWaits(why) || why["not_inserted_mtu"] == 0 {
		t.Errorf("%v", why)
	}
	for _, h := range l.Hosts() {
		if f := faults(t, h); f != "" {
			t.Errorf("%s:\n%s", h.Name, f)
		}
	}
	// Its end is behind another interface: the packet would not get there.
	if err := r.Apply(tunnel(l.Host("alpha").Addr6().String())); err != nil {
		t.Fatal(err)
	}
	transfer(t, l.Host("alpha"), l.Host("beta"), nil, 1<<10)
	if why := reasons(t, r); why["tunnel_route"] == 0 {
		t.Errorf("%v", why)
	}
	deadTunnel(t, l, router, r, tunnel(addressOf(t, porthos, "to-athos")))
}

// onlyWaits reports whether all packets passed for their length, or as what TCP sends again, which it does when a queue of veth
// is full; a flow may fall back then.
func onlyWaits(why map[string]uint64) bool {
	for reason := range why {
		if !slices.Contains([]string{"not_inserted_mtu", "not_inserted_resent", "not_inserted_dup_ack", "not_inserted_fallback"}, reason) {
			return false
		}
	}
	return true
}

// deadTunnel ends the node at the end of the tunnel, as if its agent were killed: connections of hosts that know
// nothing of the tunnel go on, soon as fast as before, and datagrams follow what TCP has shown.
func deadTunnel(t *testing.T, l *lab.Lab, router, r *Registrar, n Node) {
	t.Helper()
	gone := removing()
	gone.Interfaces[0].Name, gone.Interfaces[1].Name = "to-athos", "to-aramis"
	gone.Namespaces[0].Remove = false
	if err := errors.Join(r.Apply(n), router.Apply(gone)); err != nil {
		t.Fatal(err)
	}
	took := time.Duration(0)
	for n := range 5 {
		began := time.Now()
		transfer(t, l.Host("alpha"), l.Host("beta"), nil, 1<<20)
		took = time.Since(began)
		if t.Logf("transfer %d without the end of the tunnel took %v", n, took); n == 0 && took > 20*time.Second {
			t.Errorf("the first transfer took %v", took)
		}
	}
	a, err := r.Arrivals()
	if why := reasons(t, r); err != nil || a.Fallbacks == 0 || a.Blocked == 0 || why["not_inserted_fallback"] == 0 || took > 2*time.Second {
		t.Errorf("%+v, %v; %v; the last transfer took %v", a, err, why, took)
	}
	d, err := traffic.Datagrams(t.Context(), l.Host("alpha"), l.Host("beta"), traffic.DatagramConfig{
		To: netip.AddrPortFrom(l.Host("beta").Addr6(), 0), Count: 20, Size: 100,
	})
	if err != nil || d.Distinct != 20 {
		t.Errorf("%+v, %v", d, err)
	}
}

func reasons(t testing.TB, r *Registrar) map[string]uint64 {
	t.Helper()
	counts, err := r.Counts()
	if err != nil {
		t.Fatal(err)
	}
	why := map[string]uint64{}
	for _, c := range counts {
		why[c.Reason] += c.Packets
	}
	return why
}
