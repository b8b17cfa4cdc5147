package gate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// forging writes a SYN with a random source, port and sequence number, and sends it out of
// an interface: frames come back as what they have become. Each number is written together with its complement, so that no checksum changes:
// 16,384 addresses a.b.~a.~b from 16.0.0.0 on, each with all ports.
func forging(t *testing.T, syn []byte, ifindex int) *ebpf.Program {
	t.Helper()
	const saddr, sport, seq = 26, 34, 40
	r0, r1, r2, r6, r7 := asm.R0, asm.R1, asm.R2, asm.R6, asm.R7
	code := asm.Instructions{
		asm.LoadMem(r6, r1, 0, asm.Word), // data
		asm.LoadMem(r2, r1, 4, asm.Word), // end
		asm.Mov.Reg(r7, r6), asm.Add.Imm(r7, int32(len(syn))), asm.JGT.Reg(r7, r2, "short"),
	}
	for i := 0; i+4 <= len(syn); i += 4 {
		code = append(code, asm.StoreImm(r6, int16(i), int64(int32(binary.NativeEndian.Uint32(syn[i:]))), asm.Word))
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: append(code,
		asm.FnGetPrandomU32.Call(),
		asm.Mov.Reg(r1, r0), asm.And.Imm(r1, 0xff3f), asm.Add.Imm(r1, 0x10),
		asm.StoreMem(r6, saddr, r1, asm.Half), asm.Xor.Imm(r1, 0xffff), asm.StoreMem(r6, saddr+2, r1, asm.Half),
		asm.RSh.Imm(r0, 16),
		asm.StoreMem(r6, sport, r0, asm.Half), asm.Xor.Imm(r0, 0xffff), asm.StoreMem(r6, seq, r0, asm.Half),
		asm.Mov.Imm(r1, int32(ifindex)), asm.Mov.Imm(r2, 0), asm.FnRedirect.Call(), asm.Return(),
		asm.Mov.Imm(r0, 0).WithSymbol("short"), asm.Return(),
	)})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// flood sends forged SYNs as fast as one core does, until stop is called, which returns
// how many there were.
func flood(t *testing.T, from, to *lab.Host, port int) (stop func() uint64) {
	t.Helper()
	var index int
	var macs [2]net.HardwareAddr
	for i, h := range []*lab.Host{from, to} {
		if err := h.Do(func() error {
			l, err := net.InterfaceByName(h.Interfaces[0].Name)
			if err == nil {
				macs[i] = l.HardwareAddr
				if i == 0 {
					index = l.Index
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	syn := packet.Eth().IPv4("0.0.255.255", to.Addr4().String()).TCP(0, uint16(port)).Bytes()
	copy(syn, macs[1])
	copy(syn[6:], macs[0])
	syn[14+20+13] = 2
	fixTCP(syn[14:])
	syn = append(syn, 0, 0) // whole words
	send := forging(t, syn, index)
	var sent atomic.Uint64
	var over atomic.Bool
	var running sync.WaitGroup
	running.Go(func() {
		for !over.Load() {
			const n = 1 << 14
			if err := from.Do(func() error {
				_, err := send.Run(&ebpf.RunOptions{Data: syn, Repeat: n, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES})
				return err
			}); err != nil {
				t.Errorf("flood: %v", err)
				return
			}
			sent.Add(n)
		}
	})
	return func() uint64 {
		over.Store(true)
		running.Wait()
		return sent.Load()
	}
}

// fixTCP computes the checksum of a TCP segment without data again; its sequence number is a word
// and its complement, as forging() writes them with the port.
func fixTCP(ip []byte) {
	tcp := ip[20:]
	binary.BigEndian.PutUint32(tcp[4:], 0xffff0000)
	tcp[16], tcp[17] = 0, 0
	sum := uint32(6 + len(tcp))
	for i := 12; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
}

// visits has a client connect again and again, each time with some patience, and returns how long it took each time that
// it succeeded.
func visits(t *testing.T, from *lab.Host, source netip.Addr, to string, n int, patience time.Duration) (took []time.Duration) {
	t.Helper()
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: source.AsSlice()}}
	for range n {
		begin := time.Now()
		if err := from.Do(func() error {
			c, err := d.Dial("tcp", to)
			if err == nil {
				err = c.Close()
			}
			return err
		}); err == nil {
			took = append(took, time.Since(begin))
		}
	}
	slices.Sort(took)
	return took
}

// synReceived are the connections that wait for an ACK in the memory of a host.
func synReceived(t *testing.T, h *lab.Host) int {
	t.Helper()
	out, err := h.Run(t.Context(), "ss", "-Htn", "state", "syn-recv")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(out, "\n")
}

// TestSYNFlood: while forged SYNs come as fast as they can, clients connect to the
// protected port, and so does a source of an allow list; the flood takes no memory. Without
// protection, in the same run, it keeps clients out.
func TestSYNFlood(t *testing.T) {
	cfg := lab.Default()
	cfg.Prefix = labtest.Prefix()
	l := labtest.New(t, cfg)
	alpha, beta := l.Host("alpha"), l.Host("beta")
	occupy(t, alpha, alpha.Interfaces[0].Name) // so that it receives what XDP sends
	g := newGuard(t, beta, beta.Interfaces[0].Name, ModeNative)
	p := g.ifaces[g.iface]
	p.sends = true
	g.ifaces[g.iface] = p
	// The kernel keeps a part of a queue for clients that it knows: one is new.
	trusted, stranger := beta.Addr4().Next(), beta.Addr4().Next().Next()
	if err := alpha.Do(func() error {
		link, err := netlink.LinkByName(alpha.Interfaces[0].Name)
		if err != nil {
			return err
		}
		add := func(a netip.Addr) error {
			return netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(24, 32)}})
		}
		return errors.Join(add(trusted), add(stranger))
	}); err != nil {
		t.Fatal(err)
	}
	if err := beta.Do(func() error {
		return netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, Gw: alpha.Addr4().AsSlice()})
	}); err != nil {
		t.Fatal(err)
	}
	server := listen(t, beta, netip.AddrPortFrom(beta.Addr4(), 0), 0)
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	to := server.Addr().String()
	port := server.Addr().(*net.TCPAddr).Port
	const tries, controls, backlog = 200, 8, 256
	for _, c := range []struct {
		name, cookies, rules string
		protected            bool
	}{
		{"SYN cookies at XDP", "2", fmt.Sprintf("count tcp\npass src %s\nsyncookie tcp dst port %d", trusted, port), true},
		{"no protection", "0", "count tcp", false},
	} {
		sysctl(t, beta, map[string]string{"ipv4/tcp_syncookies": c.cookies, "ipv4/tcp_max_syn_backlog": fmt.Sprint(backlog)})
		g.apply(t, c.rules)
		begin := time.Now()
		stop := flood(t, alpha, beta, port)
		arrived := func() uint64 {
			now, err := g.Counters()
			if err != nil {
				t.Fatal(err)
			}
			return now.Rules[0].Packets
		}
		first := arrived()
		await.True(t, "the flood", func() bool { return arrived() > first+20000 })
		var took, trustedTook []time.Duration
		if c.protected {
			// A queue on the way may be full: TCP sends a SYN again after a second.
			took, trustedTook = visits(t, alpha, alpha.Addr4(), to, tries, await.Patience), visits(t, alpha, trusted, to, tries, await.Patience)
		} else {
			await.True(t, "a full queue", func() bool { return synReceived(t, beta) > backlog/2 })
			took = visits(t, alpha, stranger, to, controls, 400*time.Millisecond)
		}
		waiting := synReceived(t, beta)
		n := stop()
		var median, slow time.Duration
		if len(took) > 0 {
			median, slow = took[len(took)/2], took[len(took)*99/100]
		}
		rate := float64(n) / time.Since(begin).Seconds()
		t.Logf("%s: %d forged SYNs, %.0f/s; %d clients connected, in %s (median) and %s (99 %%); %d of the allow list; %d connections wait in memory", c.name, n, rate, len(took), median, slow, len(trustedTook), waiting)
		if c.protected && (len(took) != tries || len(trustedTook) != tries || waiting > 2) {
			t.Errorf("%s: %d and %d of %d clients connected; %d connections wait", c.name, len(took), len(trustedTook), tries, waiting)
		}
		if !c.protected && len(took) == controls {
			t.Errorf("%s: all clients connected: the flood shows nothing", c.name)
		}
	}
	counts, err := g.CookieCounts()
	if err != nil || counts["answered"] < 20000 {
		t.Errorf("%v, %v", counts, err)
	}
}
