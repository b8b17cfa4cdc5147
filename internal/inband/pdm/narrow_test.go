package pdm

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
)

// middlebox drops packets that arrive at a host, before the probe there sees
// them, and reports nothing: those longer than longest, 0: none, and those with
// Destination Options, if options.
type middlebox struct {
	longest int
	options bool
}

func (m middlebox) put(t testing.TB, h *lab.Host) {
	t.Helper()
	const drop = 2 // TC_ACT_SHOT
	longest := int32(1 << 20)
	if m.longest > 0 {
		longest = int32(etherLen + m.longest)
	}
	nextHeader := int32(0x100)
	if m.options {
		nextHeader = 60
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R6, 0, asm.Word), // skb->len
		asm.JGT.Imm(asm.R7, longest, "drop"),
		asm.LoadAbs(etherLen+6, asm.Byte),
		asm.JEq.Imm(asm.R0, nextHeader, "drop"),
		asm.Mov.Imm(asm.R0, -1),
		asm.Return(),
		asm.Mov.Imm(asm.R0, drop).WithSymbol("drop"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer p.Close()
	if err := h.Do(func() error {
		l, err := netlink.LinkByName(h.Interfaces[0].Name)
		if err != nil {
			return err
		}
		tcx, err := link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
		if err != nil {
			return err
		}
		t.Cleanup(func() { tcx.Close() })
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// command runs a command on a host.
func command(t testing.TB, h *lab.Host, argv ...string) {
	t.Helper()
	if _, err := h.Run(t.Context(), argv...); err != nil {
		t.Fatal(err)
	}
}

// Paths that take less than an interface does, or no marked packets, and report
// nothing: each transfer is made without marks and then with marks, and must not
// take notably longer. What marking costs, it costs once: later marked
// transfers find what the first one learned.
func TestMarksOnNarrowPaths(t *testing.T) {
	const bytes = 2 << 20
	for _, c := range []struct {
		name    string
		mtu     [2]int // of alpha and beta
		mss     int    // clamped at both ends
		route   int    // MTU of the routes at both ends
		box     middlebox
		reserve headroom.Mode
		packets bool
		falls   bool // must fall back
		narrow  bool // must learn that the path is narrower
	}{
		{name: "9000 and 1500", mtu: [2]int{9000, 1500}, box: middlebox{longest: 1500}, reserve: headroom.Interface},
		{name: "9000 and 1500, nothing reserved", mtu: [2]int{9000, 1500}, box: middlebox{longest: 1500}, reserve: headroom.None},
		{name: "9000 and 1500, packets", mtu: [2]int{9000, 1500}, box: middlebox{longest: 1500}, reserve: headroom.Interface, packets: true},
		{name: "1492, clamped", mtu: [2]int{1500, 1500}, mss: 1432, box: middlebox{longest: 1492}, reserve: headroom.Interface},
		{name: "1492, clamped, packets", mtu: [2]int{1500, 1500}, mss: 1432, box: middlebox{longest: 1492}, reserve: headroom.Interface, packets: true, narrow: true},
		{name: "route of 1400", mtu: [2]int{1500, 1500}, route: 1400, box: middlebox{longest: 1400}, reserve: headroom.Interface},
		{name: "route of 1400, packets", mtu: [2]int{1500, 1500}, route: 1400, box: middlebox{longest: 1400}, reserve: headroom.Interface, packets: true},
		{name: "route of 1280", mtu: [2]int{1500, 1500}, route: 1280, box: middlebox{longest: 1280}, reserve: headroom.None},
		{name: "options dropped", mtu: [2]int{1500, 1500}, box: middlebox{options: true}, reserve: headroom.Interface, falls: true},
		{name: "options dropped, packets", mtu: [2]int{1500, 1500}, box: middlebox{options: true}, reserve: headroom.None, packets: true, falls: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 1500})
			if err := l.SetOffloads(allOffloads, false); err != nil {
				t.Fatal(err)
			}
			hosts := [2]*lab.Host{l.Host("alpha"), l.Host("beta")}
			for i, h := range hosts {
				name := h.Interfaces[0].Name
				if err := h.Do(func() error { return setMTU(name, c.mtu[i]) }); err != nil {
					t.Fatal(err)
				}
				c.box.put(t, h)
				to := hosts[1-i].Addr6().String()
				switch {
				case c.route > 0:
					command(t, h, "ip", "-6", "route", "add", to, "dev", name, "mtu", fmt.Sprint(c.route))
				case c.mss > 0:
					command(t, h, "ip", "-6", "route", "add", to, "dev", name, "advmss", fmt.Sprint(c.mss))
				}
			}
			// Each host serves at a port of its own: what is learned of one service says nothing of another.
			ports := map[*lab.Host]uint16{hosts[0]: 7000, hosts[1]: 7001}
			transfer := func(from, to *lab.Host) time.Duration {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				r, err := traffic.Bulk(ctx, from, to, traffic.BulkConfig{To: netip.AddrPortFrom(to.Addr6(), ports[to]), Bytes: bytes})
				if err != nil {
					t.Fatal(err)
				}
				return r.Duration
			}
			var plain [2]time.Duration
			for i := range plain {
				plain[i] = transfer(hosts[i], hosts[1-i])
			}
			cfg := unlimited()
			cfg.Packets = c.packets
			marking := [2]*markingHost{mark(t, hosts[0], cfg, c.reserve), mark(t, hosts[1], cfg, c.reserve)}
			for i, h := range hosts {
				learning := transfer(h, hosts[1-i])
				// Falling back costs a lost SYN and a few retransmissions, once.
				if most := plain[i] + 10*time.Second; learning > most {
					t.Errorf("%s sends: %v, without marks %v", h.Name, learning, plain[i])
				}
			}
			for i, h := range hosts {
				// What marks cost, they cost every time; a busy machine does not.
				var took []time.Duration
				for len(took) < 10 && (len(took) == 0 || slices.Min(took) > plain[i]+500*time.Millisecond) {
					took = append(took, transfer(h, hosts[1-i]))
				}
				if slices.Min(took) > plain[i]+500*time.Millisecond {
					t.Errorf("%s sends, with what the first transfer learned: %v, without marks %v", h.Name, took, plain[i])
				}
			}
			for _, m := range marking {
				m.drain(t)
				s, err := m.marker.Stats()
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s: %d marked, %d fell back, %d blocked, %d narrowed, passed over %v", m.Name, s.Marked, s.Fallbacks, s.Blocked, s.Narrowed, m.lost)
				if (s.Fallbacks > 0) != c.falls || (m.lost["fallback"] > 0) != c.falls {
					t.Errorf("%s: %d flows fell back, passed over %v", m.Name, s.Fallbacks, m.lost)
				}
				// A burst of few segments may show it, too, but need not come up.
				if s.Narrowed == 0 && c.narrow || s.Narrowed > 0 && c.mss == 0 {
					t.Errorf("%s: %d paths turned out to be narrower", m.Name, s.Narrowed)
				}
				if s.Marked < 10 && !c.falls {
					t.Errorf("%s marked %d", m.Name, s.Marked)
				}
			}
		})
	}
}
