package forward

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/test/soak"
)

type mac = [6]byte

// way is how a packet leaves a router. The zero value: it does not.
type way struct {
	out      string
	src, dst mac
}

// tables are what a router knows, by family (IPv4, IPv6) and way out.
type tables struct {
	what      string // the change that led here
	lossy     bool   // packets that are on their way meanwhile may be lost
	in        mac
	src       [2]mac
	neighbour [2][2]mac // zero: not known
	primary   [2]int    // the way out of the best route; -1: there is none
	backup    [2][2]bool
	local     [2]bool // the destination is an address of the router
}

func (s *tables) way(family int) way {
	out := s.primary[family]
	for n := 1; n >= 0 && s.primary[family] < 0; n-- { // the first has the better metric
		if s.backup[family][n] {
			out = n
		}
	}
	if out < 0 || s.local[family] || s.neighbour[family][out] == (mac{}) {
		return way{}
	}
	return way{twinPort[1+out], s.src[out], s.neighbour[family][out]}
}

// churn has the tables of two twins change in the same way, under load. The first twin forwards at XDP.
type churn struct {
	t      *testing.T
	twins  [2]*twin
	random *rand.Rand
	over   atomic.Bool

	mu      sync.Mutex
	known   []tables // by number of changes; the last may not be in effect yet
	acked   int      // changes that both kernels have acknowledged
	sent    []int    // by number of a packet: changes that were acknowledged when it was sent
	arrived [2][]bool
	stale   [2][]string
}

const churnPort = 4711

var (
	churnSource   = [2]string{"192.0.2.1", "2001:db8:a::1"}
	churnTo       = [2]string{"198.51.100.1", "2001:db8:b::1"}
	churnNextHops = [2][2]string{{"10.9.1.2", "10.9.2.2"}, {"2001:db8:9:1::2", "2001:db8:9:2::2"}}
	churnMetrics  = [2]int{20, 30} // of backup routes
)

// send sends packets of both families to both twins, and returns the number behind the last.
func (c *churn) send(pairs int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.known[c.acked].in
	var frames [][]byte
	for range pairs {
		for _, b := range []packet.Builder{packet.Eth().IPv4(churnSource[0], churnTo[0]), packet.Eth().IPv6(churnSource[1], churnTo[1])} {
			f := b.UDP(churnPort, churnPort).Raw(binary.BigEndian.AppendUint32(nil, uint32(len(c.sent)))).Bytes()
			copy(f, in[:])
			frames = append(frames, f)
			c.sent = append(c.sent, c.acked)
		}
	}
	for n, tw := range c.twins {
		c.arrived[n] = append(c.arrived[n], make([]bool, len(frames))...)
		if err := tw.sender.Send(frames...); err != nil {
			c.t.Errorf("sending: %v", err)
		}
	}
	return len(c.sent)
}

// read takes what leaves a twin by a way.
func (c *churn) read(twin, out int) {
	buf := make([]byte, 2048)
	fd := c.twins[twin].sockets[out]
	for !c.over.Load() {
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20)
		for {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				break
			}
			c.take(twin, out, buf[:n])
		}
	}
}

func (c *churn) take(twin, out int, f []byte) {
	family, at := 0, 14+20
	if len(f) > 12 && binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_IPV6 {
		family, at = 1, 14+40
	}
	if len(f) < at+12 || binary.BigEndian.Uint16(f[at:]) != churnPort || f[14+9-3*family] != unix.IPPROTO_UDP {
		return // of the router itself
	}
	got := way{twinPort[1+out], mac(f[6:12]), mac(f[:6])}
	number := binary.BigEndian.Uint32(f[at+8:])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrived[twin][number] = true
	since := c.known[c.sent[number]:]
	if !slices.ContainsFunc(since, func(s tables) bool { return s.way(family) == got }) {
		c.stale[twin] = append(c.stale[twin], fmt.Sprintf("a packet of IPv%d, sent when change %d was acknowledged (%s), left %+v, not %+v; %d changes later", 4+2*family, c.sent[number], since[0].what, got, since[0].way(family), len(since)-1))
	}
}

// change makes a change in both kernels, and sends packets when these have acknowledged it. Until then, the kernel may be
// in between.
func (c *churn) change(what string, next func(*tables), how func() error, between ...func(*tables)) {
	c.t.Helper()
	c.mu.Lock()
	s := c.known[c.acked]
	s.what, s.lossy = what, false
	for _, step := range append(between, next) {
		step(&s)
		c.known = append(c.known, s)
	}
	c.mu.Unlock()
	for _, tw := range c.twins {
		if err := tw.router.Do(how); err != nil {
			c.t.Fatalf("change %d, %s: %v", len(c.known), what, err)
		}
	}
	c.mu.Lock()
	c.acked = len(c.known) - 1
	c.mu.Unlock()
	end := c.send(2)
	await.True(c.t, "packets after: "+what, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for n := range c.twins {
			for i := end - 4; i < end; i++ {
				if s.way(i%2) != (way{}) && !c.arrived[n][i] && len(c.stale[n]) == 0 {
					return false
				}
			}
		}
		return true
	})
}

func (c *churn) mac() (m mac) {
	m[0], m[1] = 2, 0x77
	binary.BigEndian.PutUint32(m[2:], uint32(len(c.known)))
	return m
}

func (c *churn) setNeighbour(family, out int) {
	m := c.mac()
	c.change(fmt.Sprintf("neighbour %s", churnNextHops[family][out]), func(s *tables) { s.neighbour[family][out] = m }, func() error {
		l, err := netlink.LinkByName(twinPort[1+out])
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(churnNextHops[family][out]), HardwareAddr: m[:]})
	})
}

func (c *churn) setRoute(family, out, metric int, next func(*tables)) {
	c.change(fmt.Sprintf("route to %s by %s, metric %d", churnTo[family], twinPort[1+out], metric), next, func() error {
		l, err := netlink.LinkByName(twinPort[1+out])
		if err != nil {
			return err
		}
		to := net.ParseIP(churnTo[family])
		dst := &net.IPNet{IP: to, Mask: net.CIDRMask(128, 128)}
		if family == 0 {
			dst = &net.IPNet{IP: to.To4(), Mask: net.CIDRMask(32, 32)}
		}
		return netlink.RouteReplace(&netlink.Route{Dst: dst, Gw: net.ParseIP(churnNextHops[family][out]), LinkIndex: l.Attrs().Index, Priority: metric})
	})
}

func (c *churn) setPrimary(family, out int) {
	c.setRoute(family, out, 10, func(s *tables) { s.primary[family] = out })
}

func (c *churn) setBackup(family, out int) {
	c.setRoute(family, out, churnMetrics[out], func(s *tables) { s.backup[family][out] = true })
}

// setLocal makes the destination an address of the router, and undoes that.
func (c *churn) setLocal(family int) {
	for _, add := range []bool{true, false} {
		c.change(fmt.Sprintf("address %s: %t", churnTo[family], add), func(s *tables) { s.local[family] = add }, func() error {
			l, err := netlink.LinkByName("in")
			if err != nil {
				return err
			}
			bits := map[int]int{0: 32, 1: 128}[family]
			a, err := netlink.ParseAddr(fmt.Sprintf("%s/%d", churnTo[family], bits))
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD
			if !add {
				return netlink.AddrDel(l, a)
			}
			if err := netlink.AddrAdd(l, a); err != nil {
				return err
			}
			await.Success(c.t, func() error { // an address of IPv6 is in effect some time later
				routes, err := netlink.RouteGet(a.IP)
				if err == nil && (len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL) {
					err = fmt.Errorf("%v", routes)
				}
				return err
			})
			return nil
		})
	}
}

// setAddress gives a way out, or the way in (-1), another link address: the kernel then forgets its neighbours.
func (c *churn) setAddress(out int) {
	m := c.mac()
	c.change("link address of "+twinPort[1+out], func(s *tables) {
		if out >= 0 {
			s.neighbour[0][out], s.neighbour[1][out] = mac{}, mac{}
		}
	}, func() error {
		l, err := netlink.LinkByName(twinPort[1+out])
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(l, m[:])
	}, func(s *tables) {
		if s.lossy = true; out < 0 {
			s.in = m
			return
		}
		s.src[out] = m
	})
	if out >= 0 {
		c.setNeighbour(0, out)
		c.setNeighbour(1, out)
	}
}

// flap takes a way out down, so that backup routes are in effect, and up again.
func (c *churn) flap(out int) {
	set := func(up bool, next func(*tables)) {
		c.change(fmt.Sprintf("%s is up: %t", twinPort[1+out], up), next, func() error {
			l, err := netlink.LinkByName(twinPort[1+out])
			if err != nil {
				return err
			}
			if up {
				return netlink.LinkSetUp(l)
			}
			return netlink.LinkSetDown(l)
		})
	}
	before := c.known[c.acked]
	set(false, func(s *tables) {
		s.lossy = true
		for family := range 2 {
			s.neighbour[family][out], s.backup[family][out] = mac{}, false
			if s.primary[family] == out {
				s.primary[family] = -1
			}
		}
	})
	set(true, func(*tables) {})
	for family := range 2 {
		c.setNeighbour(family, out)
		c.setBackup(family, out)
		if before.primary[family] == out {
			c.setPrimary(family, out)
		}
	}
}

// some makes a random change.
func (c *churn) some() {
	family, out := c.random.IntN(2), c.random.IntN(2)
	switch c.random.IntN(8) {
	case 0, 1, 2:
		c.setPrimary(family, 1-c.known[c.acked].primary[family])
	case 3, 4:
		c.setNeighbour(family, c.known[c.acked].primary[family])
	case 5:
		c.setLocal(family)
	case 6:
		c.setAddress(c.random.IntN(3) - 1)
	case 7:
		c.flap(out)
	}
}

// lost are packets that did not arrive, though each table of that time leads them on.
func (c *churn) lost(twin int) (n int) {
	for number, from := range c.sent {
		around := c.known[from:min(from+4, len(c.known))]
		if !c.arrived[twin][number] && !slices.ContainsFunc(around, func(s tables) bool { return s.lossy || s.way(number%2) == way{} }) {
			n++
		}
	}
	return n
}

// TestChurn: while routes, neighbours, links and addresses change under load, nothing that is sent after the kernel has
// acknowledged a change leaves as before it, and no more is lost than where the kernel forwards.
func TestChurn(t *testing.T) {
	c := &churn{t: t, twins: [2]*twin{newTwin(t, scenes[0]), newTwin(t, scenes[0])}}
	h := *c.twins[0].router
	for _, name := range twinPort {
		h.Interfaces = append(h.Interfaces, lab.Interface{Name: name})
	}
	for _, tw := range c.twins {
		run(t, tw.router, "sysctl -qw net.ipv6.conf.all.keep_addr_on_down=1")
		ip(t, tw.router, "route del 198.51.100.0/25")
		ip(t, tw.router, "-6 route del 2001:db8:b::/49")
	}
	r := newRouter(t, &h, Config{})
	follow(t, r)
	seed := uint64(time.Now().UnixNano())
	c.random = rand.New(rand.NewPCG(seed, 3))
	c.known = []tables{{
		what: "the beginning", lossy: true, primary: [2]int{-1, -1}, in: mac(twinMAC), src: [2]mac{{2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 3}},
		neighbour: [2][2]mac{{{2, 0, 0, 0, 1, 1}, {2, 0, 0, 0, 1, 2}}, {{2, 0, 0, 0, 1, 1}, {2, 0, 0, 0, 1, 2}}},
	}}
	var running sync.WaitGroup
	for n := range c.twins {
		for out := range 2 {
			running.Go(func() { c.read(n, out) })
		}
	}
	running.Go(func() {
		pace := time.NewTicker(2 * time.Millisecond)
		defer pace.Stop()
		for !c.over.Load() {
			<-pace.C
			c.send(2)
		}
	})
	defer running.Wait()
	defer c.over.Store(true)
	for family := range 2 {
		for out := range 2 {
			c.setBackup(family, out)
		}
		c.setPrimary(family, 0)
	}
	for changes := soak.Times(150, 10_000); c.acked < changes; {
		c.some()
	}
	c.change("the end", func(s *tables) { s.lossy = true }, func() error { return nil })
	c.over.Store(true)
	running.Wait()
	for n, name := range []string{"forwarding at XDP", "the kernel"} {
		if k := len(c.stale[n]); k > 0 {
			t.Errorf("seed %d, %s: %d packets took a stale way: %s", seed, name, k, c.stale[n][0])
		}
	}
	ours, kernels, forwarded := c.lost(0), c.lost(1), r.portOf(t, 0).Packets
	if ours > kernels {
		t.Errorf("seed %d: %d packets are lost, and %d by the kernel, of %d", seed, ours, kernels, len(c.sent))
	}
	if int(forwarded[0]) < len(c.sent)/2 {
		t.Errorf("of %d packets: %v", len(c.sent), forwarded)
	}
	t.Logf("%d changes, %d packets, of which XDP forwarded %d; lost %d, by the kernel %d", c.acked, len(c.sent), forwarded[0], ours, kernels)
}
