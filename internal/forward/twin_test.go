package forward

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// twin is a router with one way in and two out, and what leaves it.
type twin struct {
	scene
	router, outside *lab.Host
	sender          *labtest.Sender
	sockets         [2]int
}

// Addresses of the routers, whose own packets are not compared.
var (
	twinMAC      = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	neighbourMAC = net.HardwareAddr{2, 0, 0, 0, 1, 0}
	own4         = netip.MustParsePrefix("10.9.0.0/16")
	own6         = netip.MustParsePrefix("2001:db8:9::/48")
	twinPort     = []string{"in", "out0", "out1"}
)

// twinSetup makes addresses, neighbours and routes. IN, OUT0 and OUT1 are what a scene routes between.
const twinSetup = `addr add 10.9.0.1/24 dev IN
addr add 10.9.1.1/24 dev OUT0
addr add 10.9.2.1/24 dev OUT1
-6 addr add 2001:db8:9::1/64 dev IN nodad
-6 addr add 2001:db8:9:1::1/64 dev OUT0 nodad
-6 addr add 2001:db8:9:2::1/64 dev OUT1 nodad
neigh add 10.9.0.2 lladdr 02:00:00:00:01:00 dev IN nud permanent
neigh add 10.9.1.2 lladdr 02:00:00:00:01:01 dev OUT0 nud permanent
neigh add 10.9.2.2 lladdr 02:00:00:00:01:02 dev OUT1 nud permanent
-6 neigh add 2001:db8:9::2 lladdr 02:00:00:00:01:00 dev IN nud permanent
-6 neigh add 2001:db8:9:1::2 lladdr 02:00:00:00:01:01 dev OUT0 nud permanent
-6 neigh add 2001:db8:9:2::2 lladdr 02:00:00:00:01:02 dev OUT1 nud permanent
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
-6 route add prohibit 2001:db8:c:4000::/50
-6 route add 2001:db8:d::/48 nexthop via 2001:db8:9:1::2 nexthop via 2001:db8:9:2::2
`

func newTwin(t *testing.T, s scene) *twin {
	t.Helper()
	tw := &twin{scene: s, router: labtest.NewHost(t), outside: labtest.NewHost(t)}
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
	for pair := range strings.FieldsSeq(s.sysctl) {
		if _, err := tw.router.Run(t.Context(), "sysctl", "-qw", pair); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range twinPort {
		ip(t, tw.router, fmt.Sprintf("link add %s type veth peer name far-%s netns %s", name, name, tw.outside.Netns))
		ip(t, tw.outside, "link set far-"+name+" up mtu 1600")
	}
	names := strings.NewReplacer(append([]string{"IN", s.in, "OUT0", s.out[0], "OUT1", s.out[1]}, s.routes...)...)
	for line := range strings.Lines(twinPorts + s.setup + names.Replace(twinSetup)) {
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
	argv := strings.Fields(words)
	if len(argv) == 0 {
		return
	}
	if argv[0] != "bridge" {
		argv = append([]string{"ip"}, argv...)
	}
	if _, err := h.Run(t.Context(), argv...); err != nil {
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
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// received is the next frame of a socket, with the tag that the kernel took out of it; nil: there is none yet.
func received(fd int, buf []byte) []byte {
	const valid, hasProto, vlan = 1 << 4, 1 << 6, 16 // struct tpacket_auxdata
	var control [64]byte
	n, controls, _, _, err := unix.Recvmsg(fd, buf, control[:], 0)
	if err != nil {
		return nil
	}
	messages, _ := unix.ParseSocketControlMessage(control[:controls])
	for _, m := range messages {
		status := binary.NativeEndian.Uint32(m.Data)
		if m.Header.Level != unix.SOL_PACKET || status&valid == 0 {
			continue
		}
		proto := uint16(unix.ETH_P_8021Q)
		if status&hasProto != 0 {
			proto = binary.NativeEndian.Uint16(m.Data[vlan+2:])
		}
		tag := binary.BigEndian.AppendUint16(nil, proto)
		tag = binary.BigEndian.AppendUint16(tag, binary.NativeEndian.Uint16(m.Data[vlan:]))
		return slices.Insert(slices.Clone(buf[:n]), 12, tag...)
	}
	return slices.Clone(buf[:n])
}

// untagged is a frame without its tags.
func untagged(f []byte) []byte {
	for len(f) >= 18 && (binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_8021Q || binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_8021AD) {
		f = slices.Delete(slices.Clone(f), 12, 16)
	}
	return f
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

func (s scene) last(n int) []byte {
	dst := []string{"198.51.100.9", "198.51.100.209"}[n]
	return toRouter(s.tagged(0).IPv4("192.0.2.77", dst).UDP(lastPort, lastPort).Payload(8).Bytes())
}

func toRouter(frame []byte) []byte {
	copy(frame, twinMAC)
	copy(frame[6:], neighbourMAC)
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
				whole := received(fd, buf)
				if whole == nil {
					return false
				}
				f := untagged(whole)
				if len(f) > 38 && binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_IP && f[23] == unix.IPPROTO_UDP && binary.BigEndian.Uint16(f[34:]) == lastPort {
					return true
				}
				if len(f) >= 34 && !isOwn(f) {
					all[n][string(whole)]++
				}
			}
		})
	}
	return all
}

// randomFrame is rarely a frame that routers would not forward.
func (s scene) randomFrame(r *rand.Rand) []byte {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	b := s.tagged(r.IntN(10))
	if r.IntN(20) == 0 {
		b = b.VLAN(uint16(r.IntN(4095)))
	}
	size := []int{0, 1, 8, 18, 100, 1000, 1350, 1372, 1380, 1400, 1440, 1460}[r.IntN(12)]
	if r.IntN(2) == 0 {
		b = b.IPv4(pick("192.0.2.1", "192.0.2.2", "192.0.2.200", "10.9.0.1", "127.0.0.1", "224.0.0.1", "8.8.8.8", "192.0.2.3"), pick("198.51.100.1", "198.51.100.200", "203.0.113.1", "203.0.113.70", "203.0.113.130", "203.0.113.200", "203.0.113.201", "10.9.0.1", "10.9.1.2", "10.9.1.9", "255.255.255.255", "224.0.0.5", "9.9.9.9", "0.1.2.3", "198.51.100.2"))
	} else {
		b = b.IPv6(pick("2001:db8:a::1", "2001:db8:a::2", "::1", "fe80::1", "ff02::1", "::", "2001:db8:a::3"), pick("2001:db8:b::1", "2001:db8:b:8000::1", "2001:db8:c::1", "2001:db8:c:4000::1", "2001:db8:9::1", "2001:db8:9:1::2", "ff02::1", "fe80::2", "3fff::1", "2001:db8:b::2", "2001:db8:d::1", "2001:db8:d::2", "2001:db8:d::3"))
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
	case 4:
		quoted := packet.Eth().IPv4("203.0.113.200", "192.0.2.1").UDP(uint16(r.IntN(9)), 4).Payload(8).Bytes()[14:]
		b = b.ICMP(3, 1, 0, 0).Raw(quoted)
		size = 0
	default:
		b = b.TCP(uint16(r.IntN(4)), uint16(r.IntN(4)))
	}
	f := toRouter(b.Payload(size).Bytes())
	l := len(f) - len(untagged(f))        // of tags
	if f[l+14] == 0x45 && r.IntN(3) > 0 { // TTL, DF, and the sum
		f[l+22], f[l+20] = []byte{0, 1, 2, 3, 64, 255}[r.IntN(6)], []byte{0, 0x40, 0x20, 0x80}[r.IntN(4)]*byte(r.IntN(2))
		sum4(f[l:])
	} else if f[l+14]>>4 == 6 && r.IntN(3) == 0 {
		f[l+21] = []byte{0, 1, 2, 3, 255}[r.IntN(5)]
	}
	switch r.IntN(40) {
	case 0:
		copy(f, []byte{2, 0, 0, 0, 9, 9}) // for others
	case 1:
		copy(f[6:], []byte{2, 0, 0, 0, 1, byte(r.IntN(4))}) // from others
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
