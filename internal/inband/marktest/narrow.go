// Package marktest shows that what stages insert into packets stops no connection: hosts
// send on paths that take less than their interfaces, or no such packets at all, and that
// report nothing. Input: what attaches a stage to a host. Output: failures of a test. Only
// tests call it.
package marktest

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

const etherLen = 14

// AllOffloads are those that segments and checksums depend on.
const AllOffloads = lab.TSO | lab.USO | lab.GSO | lab.GRO | lab.TxChecksum

// Middlebox drops packets that arrive at a host, before the probe there sees them, and
// reports nothing: those longer than Longest, 0: none, and those whose first extension
// header is Header, if Drops.
type Middlebox struct {
	Longest int
	Drops   bool
	Header  uint8
}

// Put puts it in front of a host, for the rest of the test.
func (m Middlebox) Put(t testing.TB, h *lab.Host) {
	t.Helper()
	const drop = 2 // TC_ACT_SHOT
	longest := int32(1 << 20)
	if m.Longest > 0 {
		longest = int32(etherLen + m.Longest)
	}
	header := int32(0x100)
	if m.Drops {
		header = int32(m.Header)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R6, 0, asm.Word), // skb->len
		asm.JGT.Imm(asm.R7, longest, "drop"),
		asm.LoadAbs(etherLen+6, asm.Byte),
		asm.JEq.Imm(asm.R0, header, "drop"),
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

// Command runs a command on a host.
func Command(t testing.TB, h *lab.Host, argv ...string) {
	t.Helper()
	if _, err := h.Run(t.Context(), argv...); err != nil {
		t.Fatal(err)
	}
}

// SetMTU sets the MTU of an interface in the namespace of the thread.
func SetMTU(name string, mtu int) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetMTU(l, mtu)
}

// Path is one between two hosts.
type Path struct {
	Name    string
	MTU     [2]int // of the interfaces of alpha and beta
	MSS     int    // clamped at both ends
	Route   int    // MTU of the routes at both ends
	Box     Middlebox
	Reserve headroom.Mode
	Packets bool // bursts are segmented before they are marked
	Falls   bool // marks must stop
	Narrow  bool // flows must learn that the path is narrower
}

// NarrowPaths are those that every stage is tested on. header is that of its marks.
func NarrowPaths(header uint8) []Path {
	drops := Middlebox{Drops: true, Header: header}
	return []Path{
		{Name: "9000 and 1500", MTU: [2]int{9000, 1500}, Box: Middlebox{Longest: 1500}, Reserve: headroom.Interface},
		{Name: "9000 and 1500, nothing reserved", MTU: [2]int{9000, 1500}, Box: Middlebox{Longest: 1500}, Reserve: headroom.None},
		{Name: "1492, clamped", MTU: [2]int{1500, 1500}, MSS: 1432, Box: Middlebox{Longest: 1492}, Reserve: headroom.Interface},
		{Name: "route of 1400", MTU: [2]int{1500, 1500}, Route: 1400, Box: Middlebox{Longest: 1400}, Reserve: headroom.Interface},
		{Name: "route of 1280", MTU: [2]int{1500, 1500}, Route: 1280, Box: Middlebox{Longest: 1280}, Reserve: headroom.None},
		{Name: "options dropped", MTU: [2]int{1500, 1500}, Box: drops, Reserve: headroom.Interface, Falls: true},
	}
}

// Outcome is what became of the packets of a host.
type Outcome struct {
	Marked, Fallbacks, Blocked, Narrowed uint64
	Others                               uint64            // flows that fell back of another stage, whose marks the path takes
	Passed                               map[string]uint64 // packets without a mark, by reason
}

// Run makes transfers without marks and then with marks, which must not take notably
// longer. What marking costs, it costs once: later marked transfers find what the first
// one learned. attach attaches the stage to a host, and returns what reads its outcome.
func (p Path) Run(t *testing.T, attach func(t *testing.T, h *lab.Host) func() Outcome) {
	Attempt(t, func(t *testing.T) string { return p.run(t, attach) })
}

// run is one attempt.
func (p Path) run(t *testing.T, attach func(t *testing.T, h *lab.Host) func() Outcome) (disturbed string) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 1500})
	if err := l.SetOffloads(AllOffloads, false); err != nil {
		t.Fatal(err)
	}
	r := run{t: t, hosts: [2]*lab.Host{l.Host("alpha"), l.Host("beta")}}
	for i, h := range r.hosts {
		p.prepare(t, h, r.hosts[1-i], p.MTU[i])
	}
	var plain [2]time.Duration
	for i := range plain {
		plain[i] = r.transfer(i)
	}
	var outcome [2]func() Outcome
	for i, h := range r.hosts {
		outcome[i] = attach(t, h)
	}
	for i, h := range r.hosts {
		// Falling back costs a lost SYN and a few retransmissions, once.
		if learning := r.transfer(i); learning > plain[i]+10*time.Second {
			t.Errorf("%s sends: %v, without marks %v", h.Name, learning, plain[i])
		}
	}
	for i, h := range r.hosts {
		// What marks cost, they cost every time; a busy machine does not.
		var took []time.Duration
		for len(took) < 10 && (len(took) == 0 || slices.Min(took) > plain[i]+500*time.Millisecond) {
			took = append(took, r.transfer(i))
		}
		if slices.Min(took) > plain[i]+500*time.Millisecond {
			t.Errorf("%s sends, with what the first transfer learned: %v, without marks %v", h.Name, took, plain[i])
		}
	}
	for i, h := range r.hosts {
		if d := p.judge(t, h.Name, outcome[i]()); d != "" {
			disturbed = d
		}
	}
	return disturbed
}

// run are transfers between two hosts.
type run struct {
	t     *testing.T
	hosts [2]*lab.Host
}

// transfer sends from a host to the other one. Each serves at a port of its own: what is
// learned of one service says nothing of another.
func (r *run) transfer(from int) time.Duration {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	to := r.hosts[1-from]
	result, err := traffic.Bulk(ctx, r.hosts[from], to, traffic.BulkConfig{To: netip.AddrPortFrom(to.Addr6(), uint16(7001-from)), Bytes: 2 << 20})
	if err != nil {
		r.t.Fatal(err)
	}
	return result.Duration
}

// prepare makes a host one end of the path.
func (p Path) prepare(t *testing.T, h, peer *lab.Host, mtu int) {
	t.Helper()
	name := h.Interfaces[0].Name
	if err := h.Do(func() error { return SetMTU(name, mtu) }); err != nil {
		t.Fatal(err)
	}
	p.Box.Put(t, h)
	to := peer.Addr6().String()
	switch {
	case p.Route > 0:
		Command(t, h, "ip", "-6", "route", "add", to, "dev", name, "mtu", fmt.Sprint(p.Route))
	case p.MSS > 0:
		Command(t, h, "ip", "-6", "route", "add", to, "dev", name, "advmss", fmt.Sprint(p.MSS))
	}
}

// judge compares what became of packets with what must.
func (p Path) judge(t *testing.T, name string, o Outcome) (disturbed string) {
	t.Helper()
	t.Logf("%s: %d marked, %d fell back, %d blocked, %d narrowed, passed over %v", name, o.Marked, o.Fallbacks, o.Blocked, o.Narrowed, o.Passed)
	switch {
	case p.Falls && (o.Fallbacks == 0 || o.Passed["fallback"] == 0):
		t.Errorf("%s: %d flows fell back, passed over %v", name, o.Fallbacks, o.Passed)
	case !p.Falls && o.Fallbacks > 0 || o.Others > 0:
		return fmt.Sprintf("%s: %d flows fell back, and %d of another stage, passed over %v", name, o.Fallbacks, o.Others, o.Passed)
	}
	// A burst of few segments may show it, too, but need not come up.
	if o.Narrowed == 0 && p.Narrow || o.Narrowed > 0 && p.MSS == 0 {
		t.Errorf("%s: %d paths turned out to be narrower", name, o.Narrowed)
	}
	if o.Marked < 10 && !p.Falls {
		t.Errorf("%s marked %d", name, o.Marked)
	}
	return ""
}
