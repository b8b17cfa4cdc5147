package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// translating is a router that lets connections out and answers in, translates their sources, and has a flow table for what is
// established. IN and OUT are its interfaces.
const translating = `table inet translating {
	flowtable fast {
		hook ingress priority 0
		devices = { IN, OUT }
	}
	chain forwarded {
		type filter hook forward priority 0; policy drop;
		meta l4proto { tcp, udp } ct state established flow add @fast
		ct state established,related accept
		iifname "IN" accept
		counter name refused
	}
	chain leaving {
		type nat hook postrouting priority 100
		oifname "OUT" ip version 4 snat to 192.0.2.200
		oifname "OUT" ip6 version 6 snat to 2001:db8:a::200
	}
	counter refused { }
}
`

// translate gives a host these rules.
func translate(t *testing.T, h *lab.Host, in, out string) {
	t.Helper()
	if !kernel.FlowTables.Has() {
		t.Skipf("this kernel shows programs no flow tables: %v", kernel.FlowTables.Check())
	}
	if _, err := h.Run(t.Context(), "nft", strings.NewReplacer("IN", in, "OUT", out).Replace(translating)); err != nil {
		t.Fatal(err)
	}
}

// established are UDP flows of IPv4 and IPv6, by number.
const established = 8

// flowFrame begins a frame of a UDP flow from inside, or of its answers.
func flowFrame(n int, answer bool, b packet.Builder) packet.Builder {
	src, dst, behind := "192.0.2.1", "198.51.100.1", "192.0.2.200"
	if n%2 == 1 {
		src, dst, behind = "2001:db8:a::1", "2001:db8:b::1", "2001:db8:a::200"
	}
	sport, dport := uint16(2000+n), uint16(3000+n)
	if answer {
		src, dst, sport, dport = dst, behind, dport, sport
	}
	if n%2 == 1 {
		b = b.IPv6(src, dst)
	} else {
		b = b.IPv4(src, dst)
	}
	return b.TTL(uint8(2+n*30)).TOS(uint8(n*9)).UDP(sport, dport)
}

// toPort addresses a frame to an interface of the router.
func toPort(last byte, frame []byte) []byte {
	copy(frame, []byte{2, 0, 0, 0, 0, last})
	copy(frame[6:], neighbourMAC)
	return frame
}

// gather reads so many frames of the flows.
func gather(t *testing.T, fd, n int) (frames []string) {
	t.Helper()
	buf := make([]byte, 65536)
	await.True(t, fmt.Sprintf("%d frames", n), func() bool {
		for {
			f := received(fd, buf)
			if f == nil {
				return len(frames) >= n
			}
			ports := 34
			if binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_IPV6 {
				ports = 54
			}
			if len(f) < ports+8 || f[4] != neighbourMAC[4] { // sent, not received
				continue
			}
			if a, b := binary.BigEndian.Uint16(f[ports:]), binary.BigEndian.Uint16(f[ports+2:]); min(a, b) >= 2000 && max(a, b) < 3000+established {
				frames = append(frames, string(f))
			}
		}
	})
	slices.Sort(frames)
	return frames
}

// TestFlowTables: frames of translated flows leave as the kernel's own flow table has them leave, byte for byte, in both
// directions; and what no flow table has is the kernel's.
func TestFlowTables(t *testing.T) {
	tw := newTwin(t, scenes[0])
	translate(t, tw.router, "in", "out0")
	answers, inside := labtest.NewSender(t, tw.outside, "far-out0"), tw.receive(t, "far-in")
	send := func(s *labtest.Sender, frames ...[]byte) {
		t.Helper()
		if err := s.Send(frames...); err != nil {
			t.Fatal(err)
		}
	}
	for n := range established { // both directions have to be seen, and then one more
		for range 2 {
			send(tw.sender, toPort(1, flowFrame(n, false, packet.Eth()).Payload(8).Bytes()))
			gather(t, tw.sockets[0], 1)
			send(answers, toPort(2, flowFrame(n, true, packet.Eth()).Payload(8).Bytes()))
			gather(t, inside, 1)
		}
	}

	r := rand.New(rand.NewPCG(1, 2))
	var frames [2][][]byte // from inside, and answers
	for range 200 {
		n, answer := r.IntN(established), r.IntN(2)
		b := flowFrame(n, answer == 1, packet.Eth())
		if n%2 == 0 && r.IntN(4) == 0 {
			b = b.Checksum(0)
		}
		b = b.Payload([]int{0, 1, 7, 8, 100, 1371, 1350}[r.IntN(7)])
		frames[answer] = append(frames[answer], toPort([]byte{1, 2}[answer], b.Bytes())) // the kernel's flow table keeps padding
	}
	pass := func() (seen [2][]string) {
		send(tw.sender, frames[0]...)
		seen[0] = gather(t, tw.sockets[0], len(frames[0]))
		send(answers, frames[1]...)
		seen[1] = gather(t, inside, len(frames[1]))
		return seen
	}
	want := pass()

	tw.router.Interfaces = []lab.Interface{{Name: "in"}, {Name: "out0"}}
	ours := newRouter(t, tw.router, Config{})
	follow(t, ours)
	for n := range ours.ifaces {
		if p := ours.portOf(t, n); p.Off != "" || p.Closed != "" || !strings.Contains(p.Only, "inet translating forwarded") {
			t.Fatalf("%+v", p)
		}
	}
	pass() // to each neighbour, the kernel sends one
	var before [2]uint64
	for n := range before {
		before[n] = ours.portOf(t, n).Packets[0]
	}
	got := pass()
	for n, what := range []string{"from inside", "answers"} {
		p := ours.portOf(t, n)
		if forwarded := p.Packets[0] - before[n]; forwarded != uint64(len(frames[n])) {
			t.Errorf("%s: %d of %d frames are forwarded at XDP: %s", what, forwarded, len(frames[n]), becameOf(&p))
		}
		for i := range want[n] {
			if want[n][i] != got[n][i] {
				t.Fatalf("%s: frame %d\nby the kernel %x\nat XDP        %x", what, i, want[n][i], got[n][i])
			}
		}
	}

	// What nobody let in.
	refused := ours.portOf(t, 1).Packets[abiForwardResultFORWARD_NO_FLOW]
	send(answers, toPort(2, packet.Eth().IPv4("198.51.100.1", "192.0.2.1").UDP(7, 7).Payload(8).Bytes()))
	await.True(t, "a packet that the rules refuse", func() bool {
		out, err := tw.router.Run(t.Context(), "nft", "list counter inet translating refused")
		return err == nil && strings.Contains(out, "packets 1 ") && ours.portOf(t, 1).Packets[abiForwardResultFORWARD_NO_FLOW] == refused+1
	})

	// Which way a mark leads, the kernel knows.
	for _, family := range []string{"-4 ", "-6 "} {
		run(t, tw.router, "ip "+family+"rule add fwmark 7 table 77")
		await.True(t, "that nothing is forwarded", func() bool {
			p := ours.portOf(t, 0)
			return strings.Contains(p.Off, "fwmark")
		})
		run(t, tw.router, "ip "+family+"rule del fwmark 7 table 77")
		await.True(t, "that flows are forwarded", func() bool {
			p := ours.portOf(t, 0)
			return p.Off == ""
		})
	}

	// Without the flow table, all is the kernel's.
	run(t, tw.router, "nft flush chain inet translating forwarded")
	run(t, tw.router, "nft delete flowtable inet translating fast")
	await.True(t, "that nothing is forwarded", func() bool {
		p := ours.portOf(t, 0)
		return strings.Contains(p.Off, "remove them")
	})
}

// TestTranslatedConnections: TCP connections whose addresses the router translates work, begin and end by the kernel, and are
// forwarded at XDP; flows have their packets with both addresses.
func TestTranslatedConnections(t *testing.T) {
	l := chain(t, 1500, false)
	alpha, athos, beta := l.Host("alpha"), l.Host("athos"), l.Host("beta")
	in, out := athos.Interfaces[0].Name, athos.Interfaces[1].Name
	translate(t, athos, in, out)
	// The next routers know a way back to the translated source.
	for _, name := range []string{"porthos", "aramis", "beta"} {
		h := l.Host(name)
		via := map[string]*lab.Host{"porthos": athos, "aramis": l.Host("porthos"), "beta": l.Host("aramis")}[name]
		back := via.Interfaces[len(via.Interfaces)-1]
		ip(t, h, "route add 192.0.2.200 via "+back.Addr4.Addr().String())
		ip(t, h, "-6 route add 2001:db8:a::200 via "+back.Addr6.Addr().String())
	}
	r := newRouter(t, athos, Config{})
	follow(t, r)
	const bytes = 1 << 18
	for _, network := range []string{"tcp4", "tcp6"} {
		transfer(t, alpha, beta, network, bytes)
	}
	var forwarded [2]uint64
	for n := range forwarded {
		p := r.portOf(t, n)
		t.Log(athos.Interfaces[n].Name, becameOf(&p))
		if forwarded[n] = p.Packets[0]; forwarded[n] < 2*bytes/1500 || p.Packets[abiForwardResultFORWARD_NO_FLOW] < 4 {
			t.Errorf("%s: %s", athos.Interfaces[n].Name, becameOf(&p))
		}
	}
	behind := []netip.Addr{netip.MustParseAddr("192.0.2.200"), netip.MustParseAddr("2001:db8:a::200")}
	var counted [2][2]uint64 // of packets from the client, and to it: where they arrive, and where they leave
	if err := r.dp.Drain(func(d *flow.Delta) {
		if d.Proto != packet.ProtoTCP || d.Forwarded == 0 {
			return
		}
		src, dst := netip.AddrFrom16(d.Src).Unmap(), netip.AddrFrom16(d.Dst).Unmap()
		client := []netip.Addr{alpha.Addr4(), alpha.Addr6()}
		outside := (d.Direction == flow.Egress) == (d.Iface == r.ifaces[1]) // from the client
		switch {
		case outside && d.Iface == r.ifaces[0] && slices.Contains(client, src):
			counted[0][0] += d.Forwarded
		case outside && d.Iface == r.ifaces[1] && slices.Contains(behind, src):
			counted[0][1] += d.Forwarded
		case !outside && d.Iface == r.ifaces[1] && slices.Contains(behind, dst):
			counted[1][0] += d.Forwarded
		case !outside && d.Iface == r.ifaces[0] && slices.Contains(client, dst):
			counted[1][1] += d.Forwarded
		default:
			t.Errorf("%v %v: %v > %v", d.Iface, d.Direction, src, dst)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if want := [2][2]uint64{{forwarded[0], forwarded[0]}, {forwarded[1], forwarded[1]}}; counted != want {
		t.Errorf("in flows are %d, forwarded %d", counted, forwarded)
	}
	if out, err := athos.Run(t.Context(), "nft", "list counter inet translating refused"); err != nil || !strings.Contains(out, "packets 0 ") {
		t.Error(errors.Join(err, errors.New(out)))
	}
}

// TestFlowTablesTakePrivilege: without CAP_SYS_ADMIN, which a program with a function of a module takes to load, programs load as
// without flow tables.
func TestFlowTablesTakePrivilege(t *testing.T) {
	if os.Getenv("WITHOUT_SYS_ADMIN") != "" {
		r := newRouter(t, &lab.Host{}, Config{})
		if err := kernel.FlowTables.Check(); r.offload || err == nil || !strings.Contains(err.Error(), "CAP_SYS_ADMIN") {
			t.Errorf("flow tables are used: %v; %v", r.offload, err)
		}
		return
	}
	if _, err := os.Stat("/sys/kernel/btf/nf_flow_table"); err != nil || !kernel.FlowTables.Has() {
		t.Skipf("this kernel has no module that shows programs flow tables: %v", kernel.FlowTables.Check())
	}
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and ends with the goroutine
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil {
			ended <- err
			return
		}
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "WITHOUT_SYS_ADMIN=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		ended <- err
	}()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
