package balance

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/test/soak"
)

// conn is a connection of a client, which knows who answers.
type conn struct {
	net.Conn
	backend byte
}

// serveEcho has each backend send its number, and then what it gets.
func (s *scene) serveEcho(t testing.TB, port int) {
	t.Helper()
	for n, h := range s.backends {
		l := listenTCP(t, h, port)
		t.Cleanup(func() { l.Close() })
		for _, vip := range []netip.Addr{vip4, vip6} { // what answers has to come from there
			var u net.PacketConn
			if err := h.Do(func() (err error) {
				u, err = net.ListenPacket("udp", netip.AddrPortFrom(vip, uint16(port)).String())
				return err
			}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { u.Close() })
			go echo(u, byte(n))
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					if _, err := c.Write([]byte{byte(n)}); err == nil {
						_, _ = io.Copy(c, c) // until the client closes
					}
				}()
			}
		}()
	}
}

// echo sends datagrams back, behind a number, until the socket is closed.
func echo(u net.PacketConn, number byte) {
	b := make([]byte, 1<<16)
	for {
		size, from, err := u.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = u.WriteTo(append([]byte{number}, b[:size]...), from)
	}
}

// connectTo opens a connection.
func connectTo(h *lab.Host, to netip.AddrPort) (c *conn, err error) {
	c = &conn{}
	if err := h.Do(func() (err error) {
		c.Conn, err = net.DialTimeout("tcp", to.String(), 20*time.Second)
		return err
	}); err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 1)
	_, err = io.ReadFull(c, b)
	c.backend = b[0]
	return c, err
}

// works reports whether a connection still answers.
func (c *conn) works() error {
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	sent, got := []byte(fmt.Sprint(rand.Uint64())), make([]byte, 64)
	if _, err := c.Write(sent); err != nil {
		return err
	}
	n, err := io.ReadFull(c, got[:len(sent)])
	if err == nil && string(got[:n]) != string(sent) {
		err = fmt.Errorf("sent %s, got %s", sent, got[:n])
	}
	return err
}

func (s *scene) open(t *testing.T, to netip.AddrPort, n int) (all []*conn) {
	t.Helper()
	for range n {
		c, err := connectTo(s.client, to)
		if err != nil {
			ports, _ := s.Ports()
			services, _ := s.Services()
			t.Fatalf("%v\n%+v\n%+v", err, services, ports)
		}
		t.Cleanup(func() { c.Close() })
		all = append(all, c)
	}
	return all
}

// TestDrain: connections of a backend that drains go on, all of them, and new ones go elsewhere; when it is back, it gets some
// again.
func TestDrain(t *testing.T) {
	s := newScene(t, 3, Config{})
	s.serveEcho(t, 7)
	one := s.serviceOf(vip4, 7, packet.ProtoTCP, IPIP, false)
	s.apply(t, one)
	at := netip.AddrPortFrom(vip4, 7)
	old := s.open(t, at, 30)
	one.Backends[1].Drain = true
	s.apply(t, one)
	for _, c := range s.open(t, at, 30) {
		if c.backend == 1 {
			t.Error("a new connection went to the backend that drains")
		}
	}
	drained := 0
	for _, c := range old {
		if err := c.works(); err != nil {
			t.Errorf("a connection of backend %d broke: %v", c.backend, err)
		}
		if c.backend == 1 {
			drained++
		}
	}
	state := s.stateOf(t, one.Name)
	if drained == 0 || state.Backends[1].Connections != uint64(drained) || state.Backends[1].Entries != 0 || state.Moved != 0 {
		t.Errorf("%d connections drain: %+v", drained, state)
	}
	one.Backends[1].Drain = false
	s.apply(t, one)
	await.True(t, "a connection to the backend that is back", func() bool { return s.open(t, at, 1)[0].backend == 1 })
}

// TestFailure: when backends fail, and when one is removed, no connection of the others breaks, and new ones go to the others.
func TestFailure(t *testing.T) {
	s := newScene(t, 5, Config{})
	s.serveEcho(t, 7)
	one := s.serviceOf(vip6, 7, packet.ProtoTCP, GUE, true)
	s.apply(t, one)
	at := netip.AddrPortFrom(vip6, 7)
	old := s.open(t, at, 50)
	if err := s.SetHealth(one.Address, addr(2, true), false); err != nil {
		t.Fatal(err)
	}
	for _, c := range append(old, s.open(t, at, 20)...) {
		if err := c.works(); (err != nil) != (c.backend == 2) {
			t.Errorf("a connection of backend %d: %v", c.backend, err)
		}
	}
	if state := s.stateOf(t, one.Name); state.Moved == 0 || state.Backends[2].Up {
		t.Errorf("%+v", state)
	}
	one.Backends = append(one.Backends[:2], one.Backends[3], one.Backends[4])
	s.apply(t, one)
	for _, c := range old {
		if err := c.works(); (err != nil) != (c.backend == 2) {
			t.Errorf("without backend 2, a connection of backend %d: %v", c.backend, err)
		}
	}
}

// TestFlood: SYNs of many sources, as fast as they can be sent, take no place of an established connection, and no memory; what has no
// place is counted. Connections work meanwhile and afterwards, also where new ones would go elsewhere.
func TestFlood(t *testing.T) {
	s := newScene(t, 2, Config{Connections: 1024, NewPerSecond: 3000, Idle: time.Hour})
	s.serveEcho(t, 7)
	one := s.serviceOf(vip4, 7, packet.ProtoTCP, L2, false)
	s.apply(t, one)
	old := s.open(t, netip.AddrPortFrom(vip4, 7), 40)
	for _, c := range old {
		if err := c.works(); err != nil {
			t.Fatal(err)
		}
	}
	flood := make(chan struct{})
	send, link := labtest.NewSender(t, s.client, "e"), s.linkTo(t)
	go func() {
		defer close(flood)
		for range soak.Times(20_000, 2_000_000) { // one at a time: the queue of the interface is short
			source := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0x0b000000|rand.Uint32()>>8)))
			frame := packet.Eth().IPv4(source.String(), vip4.String()).TCP(uint16(1024+rand.IntN(60000)), 7).Flags(packet.SYN).Bytes()
			copy(frame, link)
			for deadline := time.Now().Add(await.Patience); send.Send(frame) != nil; {
				if time.Now().After(deadline) {
					t.Error("frames cannot be sent")
					return
				}
			}
		}
	}()
	during := 0
	for over := false; !over; {
		select {
		case <-flood:
			over = true
		default:
			if err := old[during%len(old)].works(); err != nil {
				t.Fatalf("during the flood, a connection of backend %d broke: %v", old[during%len(old)].backend, err)
			}
			during++
		}
	}
	if during < len(old) {
		t.Errorf("during the flood, connections were used %d times", during)
	}
	// What is not in the table would go elsewhere now.
	one.Backends[0].Drain = true
	s.apply(t, one)
	for _, c := range old {
		if err := c.works(); err != nil {
			t.Errorf("a connection of backend %d broke: %v", c.backend, err)
		}
	}
	state := s.stateOf(t, one.Name)
	if n := state.Backends[0].Connections + state.Backends[1].Connections; n > 1024 || n < 500 {
		t.Errorf("%d connections are in the table", n)
	}
	if state.Packets[0] < 20_000 || state.OverBudget == 0 {
		t.Errorf("%+v", state.Counts)
	}
	if err := s.Sweep(); err != nil {
		t.Error(err)
	}
}

// linkTo is a link header from the client to the balancer.
func (s *scene) linkTo(t testing.TB) []byte {
	t.Helper()
	mac := func(h *lab.Host, name string) (mac net.HardwareAddr) {
		if err := h.Do(func() error {
			i, err := net.InterfaceByName(name)
			if err == nil {
				mac = i.HardwareAddr
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return mac
	}
	return append(append(mac(s.lb, "c"), mac(s.client, "e")...), 8, 0)
}

// TestDial: a health check gets to the backend that it is for, by every way, and uses no entry of the connection table.
func TestDial(t *testing.T) {
	s := newScene(t, 3, Config{})
	s.serveEcho(t, 7)
	// The router of the balancer is where clients are.
	run(t, s.lb, "ip route add 10.9.9.0/24 via 10.1.0.2\nip -6 route add fd09::/64 via fd01:0::2")
	for _, c := range []struct {
		vip    netip.Addr
		how    Forwarding
		outer6 bool
	}{{vip4, L2, false}, {vip6, L2, true}, {vip4, IPIP, false}, {vip6, IPIP, false}, {vip4, IPIP, true}, {vip6, GUE, true}, {vip4, GUE, false}} {
		one := s.serviceOf(c.vip, 7, packet.ProtoTCP, c.how, c.outer6)
		s.apply(t, one)
		for n := range s.backends {
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			got, err := s.Dial(ctx, one.Address, addr(n, c.outer6), "tcp")
			stop()
			if err != nil {
				t.Errorf("%+v: %v", c, err)
				continue
			}
			b := make([]byte, 1)
			_ = got.SetDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.ReadFull(got, b); err != nil || int(b[0]) != n {
				t.Errorf("%+v: backend %d answers for %d: %v", c, b[0], n, err)
			}
			got.Close()
		}
		if state := s.stateOf(t, one.Name); state.Packets[0] != 0 {
			t.Errorf("%+v", state)
		}
		s.apply(t)
	}
}

// TestStaticNeighbours: neighbours that an administrator has set stay as they are, and get packets; others are asked for again.
func TestStaticNeighbours(t *testing.T) {
	s := newScene(t, 2, Config{})
	s.serveEcho(t, 7)
	says := func(h *lab.Host, line string) string {
		t.Helper()
		out, err := h.Run(t.Context(), strings.Fields(line)...)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return strings.TrimSpace(out)
	}
	macOf := func(h *lab.Host, iface string) string {
		_, mac, _ := strings.Cut(says(h, "ip -oneline link show "+iface), "link/ether ")
		mac, _, _ = strings.Cut(mac, " ")
		return mac
	}
	mac := macOf(s.backends[0], "d0")
	run(t, s.backends[0], "ip link set d0 arp off") // answers no one
	run(t, s.backends[0], fmt.Sprintf("ip neigh replace 10.2.0.1 lladdr %[1]s dev d0 nud permanent\nip neigh replace fd02:1::1 lladdr %[1]s dev d0 nud permanent",
		macOf(s.lb, "b0")))
	for _, vip := range []netip.Addr{vip4, vip6} {
		static := addr(0, vip.Is6())
		run(t, s.lb, fmt.Sprintf("ip neigh replace %s lladdr %s dev b0 nud permanent", static, mac))
		one := s.serviceOf(vip, 7, packet.ProtoTCP, L2, vip.Is6())
		s.apply(t, one)
		for range 3 {
			if err := s.Refresh(); err != nil {
				t.Fatal(err)
			}
		}
		if got := says(s.lb, fmt.Sprintf("ip neigh show %s dev b0", static)); !strings.Contains(got, mac+" PERMANENT") {
			t.Errorf("the static neighbour is now %q", got)
		}
		await.Success(t, func() error {
			if got := says(s.lb, fmt.Sprintf("ip neigh show %s dev b1", addr(1, vip.Is6()))); !strings.Contains(got, "REACHABLE") {
				return fmt.Errorf("the other neighbour is %q", got)
			}
			return s.Refresh()
		})
		reached := map[int]bool{}
		for _, c := range s.open(t, netip.AddrPortFrom(vip, 7), 16) {
			if err := c.works(); err != nil {
				t.Error(err)
			}
			reached[int(c.backend)] = true
		}
		if len(reached) != 2 {
			t.Errorf("connections reached %v", reached)
		}
		s.apply(t)
	}
}
