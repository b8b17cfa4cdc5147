package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/soak"
)

// fastLab is a client behind a router that leads to servers, each on a link of its own. All servers have the address of a service.
func fastLab(t *testing.T, servers int) (client, router *lab.Host, behind []*lab.Host) {
	t.Helper()
	client, router = labtest.UpHost(t), labtest.UpHost(t)
	connect := func(to *lab.Host, here, there, net string) {
		must(t, router, "ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", to.Netns)
		for n, h := range []*lab.Host{router, to} {
			name := []string{here, there}[n]
			must(t, h, "ip", "addr", "add", fmt.Sprintf("%s.%d/24", net, n+1), "dev", name)
			must(t, h, "ip", "link", "set", "dev", name, "up")
			must(t, h, "ethtool", "-K", name, "gro", "on", "tx", "off")
		}
		router.Interfaces = append(router.Interfaces, lab.Interface{Name: here})
	}
	must(t, router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	connect(client, "to-client", "near", "10.1.0")
	must(t, client, "ip", "route", "add", "default", "via", "10.1.0.1")
	for n := range servers {
		h := labtest.UpHost(t)
		connect(h, fmt.Sprint("to-server", n), "near", fmt.Sprint("10.2.", n))
		must(t, h, "ip", "route", "add", "default", "via", fmt.Sprintf("10.2.%d.1", n))
		must(t, h, "ip", "addr", "add", balanced+"/32", "dev", "lo")
		must(t, router, "ping", "-c1", "-W9", fmt.Sprintf("10.2.%d.2", n))
		behind = append(behind, h)
	}
	must(t, client, "ping", "-c1", "-W9", "10.2.0.2")
	return client, router, behind
}

// between is the time between two datagrams of a stream.
const between = 2 * time.Millisecond

// paced is a stream of datagrams, each with a number; and which have arrived.
type paced struct {
	sent atomic.Uint32
	over atomic.Bool

	mu      sync.Mutex
	arrived []bool
}

// newPaced sends from a host to an address that some hosts have.
func newPaced(t *testing.T, from *lab.Host, to netip.AddrPort, at ...*lab.Host) *paced {
	t.Helper()
	p := &paced{arrived: make([]bool, 1<<20)}
	var out *net.UDPConn
	if err := from.Do(func() (err error) {
		out, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for _, h := range at {
		var in *net.UDPConn
		if err := h.Do(func() (err error) {
			in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(to))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close() })
		running.Go(func() {
			b := make([]byte, 64)
			for {
				n, err := in.Read(b)
				if err != nil {
					return
				}
				if n == 4 {
					p.mu.Lock()
					p.arrived[binary.BigEndian.Uint32(b)] = true
					p.mu.Unlock()
				}
			}
		})
	}
	sender := make(chan struct{})
	go func() {
		defer close(sender)
		pace := time.NewTicker(between)
		defer pace.Stop()
		for !p.over.Load() {
			<-pace.C
			// Refused while nobody listens, or no route: lost.
			_, _ = out.Write(binary.BigEndian.AppendUint32(nil, p.sent.Load()))
			p.sent.Add(1)
		}
	}()
	t.Cleanup(func() {
		p.over.Store(true)
		<-sender
		out.Close()
	})
	return p
}

// goesOn waits until more has been sent, and has arrived.
func (p *paced) goesOn(t *testing.T, when string) {
	t.Helper()
	first := int(p.sent.Load())
	await.True(t, "packets "+when, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := 0
		for _, is := range p.arrived[first:p.sent.Load()] {
			if is {
				n++
			}
		}
		return n > 50
	})
}

// gap is the most packets in a row that were lost, and how many in all.
func (p *paced) gap(from, to int) (longest, lost int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	row := 0
	for _, is := range p.arrived[from:to] {
		if is {
			row = 0
			continue
		}
		row++
		lost++
		longest = max(longest, row)
	}
	return longest, lost
}

// mostLost is how many packets in a row may be lost: those of 50 ms.
const mostLost = int(50 * time.Millisecond / between)

// checkGap compares a stream with one that no agent concerns.
func checkGap(t *testing.T, p, control *paced, from, controlFrom int, what string) {
	t.Helper()
	p.goesOn(t, what)
	control.goesOn(t, what)
	end, controlEnd := int(p.sent.Load())-20, int(control.sent.Load())-20 // the last ones are on their way
	longest, lost := p.gap(from, end)
	other, _ := control.gap(controlFrom, controlEnd)
	t.Logf("%s: %d packets lost, at most %d in a row, of %d; without an agent %d in a row", what, lost, longest, end-from, other)
	if longest > mostLost+other {
		t.Errorf("%s: %d packets in a row are lost, and %d without an agent", what, longest, other)
	}
}

// pinnedGate has programs stay on interfaces.
func pinnedGate(t *testing.T) string {
	t.Helper()
	config := kept(t, "native")
	return "gate" + strings.SplitN(config, "gate", 2)[1]
}

// TestForwardKilled: while agents are killed, started again with another configuration and stopped, packets go on, by XDP or by the
// kernel, with gaps of at most 50 ms; and what is configured when no agent runs is in effect at once.
func TestForwardKilled(t *testing.T) {
	t.Parallel()
	for _, pin := range []bool{true, false}[:soak.Times(1, 2)] {
		t.Run(fmt.Sprint("pin=", pin), func(t *testing.T) {
			t.Parallel()
			client, router, servers := fastLab(t, 1)
			other, _, others := fastLab(t, 1)
			at := netip.MustParseAddrPort("10.2.0.2:7")
			p, control := newPaced(t, client, at, servers[0]), newPaced(t, other, at, others[0])
			config := quick + "interfaces: [LINKS]\nforward: {interfaces: [to-*]}\n"
			if pin {
				config += pinnedGate(t)
			}
			p.goesOn(t, "before")
			for range soak.Times(1, 50) {
				from, controlFrom := int(p.sent.Load()), int(control.sent.Load())
				a := start(t, setup{host: router, config: config})
				p.goesOn(t, "with an agent")
				a.kill()
				p.goesOn(t, "after a kill")
				b := start(t, setup{host: router, config: strings.Replace(config, "max_entries: 4096", "max_entries: 8192", 1)})
				p.goesOn(t, "with the next agent")
				b.stop(t)
				checkGap(t, p, control, from, controlFrom, "forwarding")
			}
			// Nobody follows changes any more.
			must(t, router, "nft", "add table inet t; add chain inet t c { type filter hook forward priority 0; policy drop; }")
			first := int(p.sent.Load()) + 10 // those before may be on their way
			await.True(t, "packets are sent", func() bool { return int(p.sent.Load()) > first+100 })
			if _, lost := p.gap(first, first+80); lost != 80 {
				t.Errorf("the rule drops %d packets of 80", lost)
			}
			if pin {
				must(t, nil, program, "restore", "--pins", "--pin-dir", pinsOf(config))
			}
		})
	}
}

// talk is a connection that is in use all the time.
type talk struct {
	net.Conn
	server byte
	rounds atomic.Uint32
	broken atomic.Pointer[error]
}

// newTalks opens connections to a service whose servers tell their number.
func newTalks(t *testing.T, client *lab.Host, servers []*lab.Host, n int) (all []*talk) {
	t.Helper()
	for number, h := range servers {
		var l net.Listener
		if err := h.Do(func() (err error) {
			l, err = net.Listen("tcp4", balanced+":80")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					if _, err := c.Write([]byte{byte(number)}); err == nil {
						_, _ = io.Copy(c, c)
					}
				}()
			}
		}()
	}
	for range n {
		c := &talk{}
		await.Success(t, func() error {
			return client.Do(func() (err error) {
				c.Conn, err = net.DialTimeout("tcp4", balanced+":80", 10*time.Second)
				return err
			})
		})
		t.Cleanup(func() { c.Close() })
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		c.server = b[0]
		go func() {
			pace := time.NewTicker(20 * time.Millisecond)
			defer pace.Stop()
			for {
				<-pace.C
				_, err := c.Write([]byte("x"))
				if err == nil {
					_, err = io.ReadFull(c, b)
				}
				if err != nil {
					c.broken.Store(&err)
					return
				}
				c.rounds.Add(1)
			}
		}()
		all = append(all, c)
	}
	return all
}

// goOn waits until all connections have been used again.
func goOn(t *testing.T, all []*talk, when string) {
	t.Helper()
	for _, c := range all {
		first := c.rounds.Load()
		await.True(t, "a connection "+when, func() bool { return c.rounds.Load() > first+2 || c.broken.Load() != nil })
		if err := c.broken.Load(); err != nil {
			t.Errorf("%s: a connection of server %d broke: %v", when, c.server, *err)
		}
	}
}

// TestBalanceKilled: while agents are killed and started again, with pinned programs packets of a service go on, with gaps of at
// most 50 ms, and established connections stay on their backend, also on one that drains; without, they wait for the next agent.
func TestBalanceKilled(t *testing.T) {
	t.Parallel()
	for _, pin := range []bool{true, false}[:soak.Times(1, 2)] {
		t.Run(fmt.Sprint("pin=", pin), func(t *testing.T) {
			t.Parallel()
			client, router, servers := fastLab(t, 2)
			other, _, others := fastLab(t, 1)
			must(t, router, "ip", "route", "add", balanced, "via", "10.1.0.2") // as if a router were there
			control := newPaced(t, other, netip.MustParseAddrPort("10.2.0.2:7"), others[0])
			config := quick + `interfaces: [LINKS]
balance:
  interfaces: [to-*]
  services:
    - {address: ` + balanced + `, port: 80, forwarding: l2, health: {type: none}, backends: [{address: 10.2.0.2}, {address: 10.2.1.2}]}
    - {address: ` + balanced + `, port: 7, protocol: udp, forwarding: l2, health: {type: none}, backends: [{address: 10.2.1.2}]}
`
			if pin {
				config += pinnedGate(t)
			}
			draining := strings.Replace(config, "{address: 10.2.0.2}", "{address: 10.2.0.2, drain: true}", 1)
			a := start(t, setup{host: router, config: config})
			p := newPaced(t, client, netip.MustParseAddrPort(balanced+":7"), servers[1])
			p.goesOn(t, "with an agent")
			talks := newTalks(t, client, servers, 8)
			if pin {
				a.reload(t, draining, "configuration reloaded")
				config = draining
			}
			for range soak.Times(1, 50) {
				from, controlFrom := int(p.sent.Load()), int(control.sent.Load())
				goOn(t, talks, "before")
				a.kill()
				if pin {
					p.goesOn(t, "after a kill")
					goOn(t, talks, "after a kill")
				}
				a = start(t, setup{host: router, config: config})
				goOn(t, talks, "with the next agent")
				if pin {
					checkGap(t, p, control, from, controlFrom, "balancing")
				}
			}
			if pin { // the next agent keeps nothing, and what is kept ends with it
				a.kill()
				a = start(t, setup{host: router, config: strings.Replace(config, "pin: true", "pin: false", 1)})
				goOn(t, talks, "with an agent that keeps nothing")
				await.True(t, "the end of all pins", func() bool { return !exists(pinsOf(config)) })
				if log := a.stderr.String(); strings.Contains(log, "level=WARN") {
					t.Errorf("it warns: %s", log)
				}
			}
			a.stop(t)
			if got := attached(t, router); got != "" {
				t.Errorf("left: %s", got)
			}
		})
	}
}
