package forward

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/test/soak"
)

// twin is a router with one way in and two out, and what leaves it.
type twin struct {
	router, outside *lab.Host
	sender          *labtest.Sender
	sockets         [2]int
}

// Addresses of the routers, whose own packets are not compared.
var (
	twinMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	own4     = netip.MustParsePrefix("10.9.0.0/16")
	own6     = netip.MustParsePrefix("2001:db8:9::/48")
	twinPort = []string{"in", "out0", "out1"}
)

// twinSetup makes interfaces, addresses, neighbours and routes.
const twinSetup = `link set lo up
link set in address 02:00:00:00:00:01
link set out0 address 02:00:00:00:00:02
link set out1 address 02:00:00:00:00:03
link set out1 mtu 1400
link set in mtu 1600
link set in up
link set out0 up
link set out1 up
addr add 10.9.0.1/24 dev in
addr add 10.9.1.1/24 dev out0
addr add 10.9.2.1/24 dev out1
-6 addr add 2001:db8:9::1/64 dev in nodad
-6 addr add 2001:db8:9:1::1/64 dev out0 nodad
-6 addr add 2001:db8:9:2::1/64 dev out1 nodad
neigh add 10.9.0.2 lladdr 02:00:00:00:01:00 dev in nud permanent
neigh add 10.9.1.2 lladdr 02:00:00:00:01:01 dev out0 nud permanent
neigh add 10.9.2.2 lladdr 02:00:00:00:01:02 dev out1 nud permanent
-6 neigh add 2001:db8:9::2 lladdr 02:00:00:00:01:00 dev in nud permanent
-6 neigh add 2001:db8:9:1::2 lladdr 02:00:00:00:01:01 dev out0 nud permanent
-6 neigh add 2001:db8:9:2::2 lladdr 02:00:00:00:01:02 dev out1 nud permanent
route add 192.0.2.0/24 via 10.9.0.2
route add 198.51.100.0/25 via 10.9.1.2
route add 198.51.100.128/25 via 10.9.2.2
route add blackhole 203.0.113.0/26
route add prohibit 203.0.113.64/26
route add unreachable 203.0.113.128/26
route add 203.0.113.192/26 nexthop via 10.9.1.2 nexthop via 10.9.2.2
-6 route add 2001:db8:a::/48 via 2001:db8:9::2
-6 route add 2001:db8:b::/49 via 2001:db8:9:1::2
-6 route add 2001:db8:b:8000::/49 via 2001:db8:9:2::2
-6 route add blackhole 2001:db8:c::/50
-6 route add prohibit 2001:db8:c:4000::/50`

func newTwin(t *testing.T) *twin {
	t.Helper()
	tw := &twin{router: labtest.NewHost(t), outside: labtest.NewHost(t)}
	for _, h := range []*lab.Host{tw.router, tw.outside} {
		quiet := "1" // nothing of its own
		if h == tw.router {
			quiet = "0"
		}
		for _, s := range []string{
			"net.ipv6.conf.all.disable_ipv6=" + quiet, "net.ipv6.conf.default.disable_ipv6=" + quiet, "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
			"net.ipv6.conf.default.addr_gen_mode=1", "net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.default.accept_ra=0", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
		} {
			if _, err := h.Run(t.Context(), "sysctl", "-qw", s); err != nil && !(h == tw.outside && strings.Contains(s, "addr_gen")) {
				t.Fatal(err)
			}
		}
	}
	for _, name := range twinPort {
		ip(t, tw.router, fmt.Sprintf("link add %s type veth peer name far-%s netns %s", name, name, tw.outside.Netns))
		ip(t, tw.outside, "link set far-"+name+" up mtu 1600")
	}
	for line := range strings.Lines(twinSetup) {
		ip(t, tw.router, strings.TrimSpace(line))
	}
	tw.sender = labtest.NewSender(t, tw.outside, "far-in")
	for n := range tw.sockets {
		tw.sockets[n] = tw.receive(t, "far-"+twinPort[1+n])
	}
	return tw
}

func ip(t *testing.T, h *lab.Host, words string) {
	t.Helper()
	if _, err := h.Run(t.Context(), append([]string{"ip"}, strings.Fields(words)...)...); err != nil {
		t.Fatal(err)
	}
}

// receive takes all that an interface receives. It has a program at XDP, so that it takes frames of XDP and merges none.
func (tw *twin) receive(t *testing.T, iface string) (fd int) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if err := tw.outside.Do(func() error {
		i, err := net.InterfaceByName(iface)
		if err != nil {
			return err
		}
		x, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: i.Index, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = x.Close() })
		all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all)); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// isOwn reports whether the router made a frame itself: ICMP errors, and neighbour discovery.
func isOwn(frame []byte) bool {
	switch binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_IP:
		a, _ := netip.AddrFromSlice(frame[26:30])
		return own4.Contains(a)
	case unix.ETH_P_IPV6:
		a, _ := netip.AddrFromSlice(frame[22:38])
		return own6.Contains(a) || a.IsLinkLocalUnicast() || a.IsUnspecified()
	}
	return true
}

// lastPort ends a part: a frame that both routers forward, to each way out.
const lastPort = 65000

func last(n int) []byte {
	dst := []string{"198.51.100.9", "198.51.100.209"}[n]
	return toRouter(packet.Eth().IPv4("192.0.2.77", dst).UDP(lastPort, lastPort).Payload(8).Bytes())
}

func toRouter(frame []byte) []byte {
	copy(frame, twinMAC)
	return frame
}

// left are the frames that have left by each way out, in any order, until the last ones.
func (tw *twin) left(t *testing.T) (all [2]map[string]int) {
	t.Helper()
	buf := make([]byte, 65536)
	for n, fd := range tw.sockets {
		all[n] = map[string]int{}
		await.True(t, "the last frame", func() bool {
			for {
				size, _, err := unix.Recvfrom(fd, buf, 0)
				if err != nil {
					return false
				}
				f := buf[:size]
				if size > 38 && binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_IP && f[23] == unix.IPPROTO_UDP && binary.BigEndian.Uint16(f[34:]) == lastPort {
					return true
				}
				if size >= 34 && !isOwn(f) {
					all[n][string(f)]++
				}
			}
		})
	}
	return all
}

// randomFrame is rarely a frame that routers would not forward.
func randomFrame(r *rand.Rand) []byte {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	b := packet.Eth()
	if r.IntN(20) == 0 {
		b = b.VLAN(uint16(r.IntN(4095)))
	}
	size := []int{0, 1, 8, 18, 100, 1000, 1350, 1372, 1380, 1400, 1440, 1460}[r.IntN(12)]
	if r.IntN(2) == 0 {
		b = b.IPv4(pick("192.0.2.1", "192.0.2.2", "192.0.2.200", "10.9.0.1", "127.0.0.1", "224.0.0.1", "8.8.8.8", "192.0.2.3"), pick("198.51.100.1", "198.51.100.200", "203.0.113.1", "203.0.113.70", "203.0.113.130", "203.0.113.200", "203.0.113.201", "10.9.0.1", "10.9.1.2", "10.9.1.9", "255.255.255.255", "224.0.0.5", "9.9.9.9", "0.1.2.3", "198.51.100.2"))
	} else {
		b = b.IPv6(pick("2001:db8:a::1", "2001:db8:a::2", "::1", "fe80::1", "ff02::1", "::", "2001:db8:a::3"), pick("2001:db8:b::1", "2001:db8:b:8000::1", "2001:db8:c::1", "2001:db8:c:4000::1", "2001:db8:9::1", "2001:db8:9:1::2", "ff02::1", "fe80::2", "3fff::1", "2001:db8:b::2"))
		switch r.IntN(12) {
		case 0:
			b = b.HopByHop()
		case 1:
			b = b.DestOpts()
		case 2:
			b = b.Fragment(8*r.IntN(3), r.IntN(2) == 0, r.Uint32())
		}
	}
	switch r.IntN(8) {
	case 0, 1, 2:
		b = b.UDP(uint16(r.IntN(4)), uint16(r.IntN(4)))
	case 3:
		b = b.UDP(4000, 4789)
	default:
		b = b.TCP(uint16(r.IntN(4)), uint16(r.IntN(4)))
	}
	f := toRouter(b.Payload(size).Bytes())
	if at := bytes.IndexByte([]byte{0x45}, f[14]); at == 0 && r.IntN(3) > 0 { // TTL, DF, and the sum
		f[22], f[20] = []byte{0, 1, 2, 3, 64, 255}[r.IntN(6)], []byte{0, 0x40, 0x20, 0x80}[r.IntN(4)]*byte(r.IntN(2))
		sum4(f)
	} else if f[14]>>4 == 6 && r.IntN(3) == 0 {
		f[21] = []byte{0, 1, 2, 3, 255}[r.IntN(5)]
	}
	if r.IntN(8) == 0 { // damage
		f[r.IntN(min(len(f), 60))] ^= 1 << r.IntN(8)
	}
	if r.IntN(8) == 0 {
		f = append(f, make([]byte, r.IntN(30))...) // padding
	}
	return f
}

// sum4 sets the checksum of an IPv4 header.
func sum4(f []byte) {
	f[24], f[25] = 0, 0
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(f[24:], ^uint16(sum>>16+sum))
}

// TestTwin: what leaves a router that forwards at XDP is, byte by byte and port by port, what leaves its twin, where the kernel
// does it all.
func TestTwin(t *testing.T) {
	ours, kernels := newTwin(t), newTwin(t)
	h := *ours.router
	for _, name := range twinPort {
		h.Interfaces = append(h.Interfaces, lab.Interface{Name: name})
	}
	r := newRouter(t, &h, Config{})
	follow(t, r)
	if p := r.portOf(t, 0); p.Off != "" {
		t.Fatalf("%+v", p)
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	var forwarded, compared int
	const part = 200 // no more than a queue of veth holds
	for range soak.Times(4000, 1_000_000) / part {
		var frames [][]byte
		for range part {
			frames = append(frames, randomFrame(random))
		}
		frames = append(frames, last(0), last(1))
		for _, tw := range []*twin{ours, kernels} {
			if err := tw.sender.Send(frames...); err != nil {
				t.Fatal(err)
			}
		}
		got, want := ours.left(t), kernels.left(t)
		for n := range got {
			if !maps.Equal(got[n], want[n]) {
				t.Fatalf("seed %d: by %s leave\n%s\nand by that of the kernel's twin\n%s", seed, twinPort[1+n], lines(got[n], want[n]), lines(want[n], got[n]))
			}
			compared += len(want[n])
		}
	}
	p := r.portOf(t, 0)
	forwarded = int(p.Packets[0])
	if forwarded < compared/4 || compared < 500 {
		t.Errorf("%d frames are compared, of which XDP forwarded %d: %v", compared, forwarded, p.Packets)
	}
	for _, result := range []abiForwardResult{
		abiForwardResultFORWARD_BLACKHOLE, abiForwardResultFORWARD_PROHIBIT, abiForwardResultFORWARD_UNREACHABLE, abiForwardResultFORWARD_NOT_FORWARDED,
		abiForwardResultFORWARD_TTL, abiForwardResultFORWARD_TOO_BIG, abiForwardResultFORWARD_OPTIONS, abiForwardResultFORWARD_FRAGMENT, abiForwardResultFORWARD_VLAN,
		abiForwardResultFORWARD_ADDRESS, abiForwardResultFORWARD_MALFORMED, abiForwardResultFORWARD_SOURCE, abiForwardResultFORWARD_NO_NEIGHBOUR, abiForwardResultFORWARD_CHECKSUM,
	} {
		if p.Packets[result] == 0 {
			t.Errorf("no packet is %s: %v", Results[result].Name, p.Packets)
		}
	}
}

// lines are the frames that only the first has.
func lines(one, other map[string]int) string {
	var text []string
	for f, n := range one {
		if other[f] != n {
			text = append(text, fmt.Sprintf("%d (%d): %x", n, other[f], f[:min(len(f), 90)]))
		}
	}
	slices.Sort(text)
	return strings.Join(text[:min(len(text), 8)], "\n")
}
