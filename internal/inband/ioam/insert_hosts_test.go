package ioam

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/marktest"
	inbandpdm "github.com/waymark-net/waymark/internal/inband/pdm"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/internal/topology"
	wire "github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
	"github.com/waymark-net/waymark/wire/pdm"
)

// probes are loaded ones, which hosts of one test after another take: loading them takes longer than the traffic.
type probes struct {
	sync.Mutex
	free map[bool][]*probe // by whether they mark
}

var pool = &probes{free: map[bool][]*probe{}}

type probe struct {
	*datapath.Datapath
	node *Registrar
	pdm  *inbandpdm.Marker // nil: it does not mark
}

// take returns a probe that knows nothing of any path or sender, for the test t. Its counters go on.
func (ps *probes) take(t testing.TB, withPDM bool) *probe {
	t.Helper()
	ps.Lock()
	defer ps.Unlock()
	var p *probe
	if free := ps.free[withPDM]; len(free) > 0 {
		p, ps.free[withPDM] = free[0], free[1:]
	} else {
		p = loadProbe(t, withPDM)
	}
	t.Cleanup(func() {
		if t.Failed() {
			p.Close()
			return
		}
		ps.Lock()
		defer ps.Unlock()
		ps.free[withPDM] = append(ps.free[withPDM], p)
	})
	known := []string{"mark_paths", "ioam_guards", "ioam_edges_by_sender", "ioam_sequences"}
	if withPDM {
		known = append(known, "pdm_states", "pdm_near")
	}
	emptyMaps(t, p.node, known...)
	return p
}

// emptyMaps lets a node forget what is in its maps.
func emptyMaps(t testing.TB, r *Registrar, names ...string) {
	t.Helper()
	maps, err := r.core.Maps(names...)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range maps {
		if err := datapathtest.Empty(m); err != nil {
			t.Fatalf("emptying %s: %v", name, err)
		}
	}
}

func loadProbe(t testing.TB, withPDM bool) *probe {
	t.Helper()
	p := &probe{node: New(Config{Time: wire.POSIX, Transit: TransitTC})}
	stages := []*datapath.Stage{p.node.Stage(func(string) bool { return true })}
	if withPDM {
		cfg := inbandpdm.Default()
		cfg.MarksPerSecond = 0
		p.pdm = inbandpdm.New(cfg)
		stages = append(stages, p.pdm.Stage())
	}
	p.Datapath = datapath.New(datapath.Config{MaxEntries: 4096, Stages: stages}, slog.New(slog.DiscardHandler))
	if err := p.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	if withPDM {
		if err := p.pdm.SetPolicies([]policy.Policy{{To: netip.MustParsePrefix("::/0"), For: time.Hour}}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// inserter is a host of a lab that inserts into what it sends, with MTU headroom for it.
type inserter struct {
	*lab.Host
	*probe
	own    Node
	before marktest.Outcome // of hosts that had the probe
	marks  inbandpdm.Stats  // likewise
}

// inserts attaches a probe to a host's first interface.
func (ps *probes) inserts(t testing.TB, h *lab.Host, mode headroom.Mode, withPDM bool, list ...Insertion) *inserter {
	t.Helper()
	i := &inserter{Host: h, probe: ps.take(t, withPDM), own: node()}
	name := h.Interfaces[0].Name
	i.own.Interfaces = []Interface{{Name: name, ID: toID, WideID: toWide, Role: RoleBoth}}
	i.own.Insertions = list
	needs := []headroom.Need{{Mode: mode, Bytes: i.own.Reserve()}}
	if withPDM {
		needs = append(needs, headroom.Need{Mode: mode, Bytes: pdm.HeaderSize})
	}
	index := 0
	if err := h.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err == nil {
			index = l.Attrs().Index
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	keeper := headroom.New(headroom.Config{File: t.TempDir() + "/headroom.json"}, headroom.Deps{In: topology.InNetns, Log: slog.New(slog.DiscardHandler)})
	if err := keeper.Reserve(headroom.Link{Netns: h.Netns, Name: name, Index: index}, needs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := keeper.Restore(); err != nil {
			t.Error(err)
		}
	})
	if err := i.node.Apply(i.own); err != nil {
		t.Fatal(err)
	}
	i.before = i.total(t)
	if withPDM {
		s, err := i.pdm.Stats()
		if err != nil {
			t.Fatal(err)
		}
		i.marks = s
	}
	iface := flow.NewIface(0, uint32(index))
	if _, err := i.Attach(datapath.Target{Iface: iface, Name: name, Do: h.Do}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Detach(iface); err != nil {
			t.Error(err)
		}
	})
	return i
}

// outcome is what became of the packets of the host.
func (i *inserter) outcome(t testing.TB) marktest.Outcome {
	t.Helper()
	o := i.total(t)
	o.Marked -= i.before.Marked
	o.Fallbacks -= i.before.Fallbacks
	o.Blocked -= i.before.Blocked
	o.Narrowed -= i.before.Narrowed
	for reason, n := range i.before.Passed {
		if o.Passed[reason] -= n; o.Passed[reason] == 0 {
			delete(o.Passed, reason)
		}
	}
	return o
}

// total is what became of all packets of the probe.
func (i *inserter) total(t testing.TB) marktest.Outcome {
	t.Helper()
	inserted, err := i.node.InsertionCounts()
	if err != nil {
		t.Fatal(err)
	}
	arrivals, err := i.node.Arrivals()
	if err != nil {
		t.Fatal(err)
	}
	counts, err := i.node.Counts()
	if err != nil {
		t.Fatal(err)
	}
	o := marktest.Outcome{Fallbacks: arrivals.Fallbacks, Blocked: arrivals.Blocked, Narrowed: arrivals.Narrowed, Passed: map[string]uint64{}}
	for _, c := range inserted {
		o.Marked += c.Inserted
	}
	for _, c := range counts {
		if reason, ok := strings.CutPrefix(c.Reason, "not_inserted_"); ok {
			o.Passed[reason] += c.Packets
		}
	}
	return o
}

// trace72 is the insertion of a trace, by which packets grow by 72 bytes.
func trace72(t testing.TB) Insertion {
	t.Helper()
	in := insertionTo("::/0", space(t, spaceA, wire.HopLimitNodeID|wire.InterfaceIDs|wire.TimestampSeconds, 4))
	return in
}

// Paths that take less than an interface does, or no Hop-by-Hop options, and report nothing, must not
// slow a connection down. Where PDM is on the same interface, too, its marks go on where the path takes them.
func TestInsertionOnNarrowPaths(t *testing.T) {
	for n, p := range marktest.NarrowPaths(ipv6.HopByHop) {
		t.Run(p.Name, func(t *testing.T) {
			p.Run(t, func(t *testing.T, h *lab.Host) func() marktest.Outcome {
				i := pool.inserts(t, h, p.Reserve, n%2 == 1, trace72(t))
				return func() marktest.Outcome {
					o := i.outcome(t)
					if i.pdm != nil {
						s, err := i.pdm.Stats()
						o.Others = s.Fallbacks - i.marks.Fallbacks
						if err != nil || s.Marked-i.marks.Marked < 10 && o.Others == 0 {
							t.Errorf("%s: PDM %+v, %v", h.Name, s, err)
						}
					}
					return o
				}
			})
		})
	}
	for _, withPDM := range []bool{false, true} {
		t.Run(fmt.Sprintf("Packet Too Big, PDM %t", withPDM), func(t *testing.T) {
			marktest.Attempt(t, func(t *testing.T) string { return pool.narrowed(t, withPDM) })
		})
	}
}

// No connection may slow down or die because options are inserted at both ends, whatever the MTU and the
// offloads, with PDM in the same packets or without, and while insertions change; and no checksum is wrong.
func TestInsertedTraffic(t *testing.T) {
	for _, c := range []struct {
		mtu      int
		offloads bool
	}{{1280, false}, {1280, true}, {1500, false}, {1500, true}, {9000, false}, {9000, true}} {
		t.Run(fmt.Sprintf("MTU %d, offloads %t", c.mtu, c.offloads), func(t *testing.T) {
			marktest.Attempt(t, func(t *testing.T) string { return pool.testTraffic(t, c.mtu, c.offloads) })
		})
	}
}

func (ps *probes) testTraffic(t *testing.T, mtu int, offloads bool) (disturbed string) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: mtu})
	if err := l.SetOffloads(marktest.AllOffloads, offloads); err != nil {
		t.Fatal(err)
	}
	reserve := headroom.Interface
	if mtu == 1280 {
		reserve = headroom.None
	}
	both := trace72(t)
	both.Options = append(both.Options, edge(spaceA))
	a, b := ps.inserts(t, l.Host("alpha"), reserve, true, both), ps.inserts(t, l.Host("beta"), reserve, offloads, trace72(t))
	before := [2]map[string]uint64{marktest.Faults(t, a.Host), marktest.Faults(t, b.Host)}
	ctx, cancel := context.WithCancel(t.Context())
	var changing sync.WaitGroup
	changing.Go(func() { a.change(ctx, t) })
	if resent := marktest.Transfers(t, a.Host, b.Host, mtu, a.own.Reserve()); resent > marktest.ResentMost(8<<20) {
		t.Errorf("%d segments were sent again", resent)
	}
	cancel()
	changing.Wait()
	for k, i := range []*inserter{a, b} {
		if moved := marktest.NewFaults(before[k], marktest.Faults(t, i.Host)); len(moved) > 0 {
			t.Errorf("%s could not use packets: %v", i.Name, moved)
		}
		o := i.outcome(t)
		t.Logf("%s: %+v", i.Name, o)
		if o.Fallbacks > 0 {
			disturbed = fmt.Sprintf("%s: %+v", i.Name, o)
		} else if o.Marked < 400 { // segments of the bulk transfer: of 1280 bytes at least, of 9000 at most
			t.Errorf("%s: %+v", i.Name, o)
		}
		if o.Passed["broken"] > 0 {
			t.Errorf("%s: %+v", i.Name, o)
		}
	}
	return disturbed
}

// change replaces the node again and again, with the same insertions.
func (i *inserter) change(ctx context.Context, t testing.TB) {
	for ctx.Err() == nil {
		if err := i.node.Apply(i.own); err != nil {
			t.Error(err)
			return
		}
	}
}

// tshark decodes what is inserted without a warning, and finds every checksum right.
func TestTsharkReadsWhatIsInserted(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: see scripts/setup")
	}
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 1500})
	if err := l.SetOffloads(marktest.AllOffloads, false); err != nil {
		t.Fatal(err)
	}
	i := pool.inserts(t, l.Host("alpha"), headroom.Interface, true, trace72(t))
	beta := l.Host("beta")
	path, stop := marktest.Record(t, beta)
	to := netip.AddrPortFrom(beta.Addr6(), 0)
	if _, err := traffic.Bulk(t.Context(), i.Host, beta, traffic.BulkConfig{To: to, Bytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := traffic.Echo(t.Context(), i.Host, traffic.EchoConfig{To: beta.Addr6(), Count: 20, Size: 56}); err != nil {
		t.Fatal(err)
	}
	least := i.outcome(t).Marked
	stop()
	out, err := exec.Command("tshark", "-r", path, "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-Y", "ipv6.opt.ioam.trace.ns", "-T", "fields",
		"-e", "ipv6.opt.ioam.trace.ns", "-e", "ipv6.opt.ioam.trace.node.id", "-e", "tcp.checksum.status", "-e", "icmpv6.checksum.status",
		"-e", "_ws.expert.message").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	// Packets of the end of the connection may be on their way, and others leave after the capture.
	if o := i.outcome(t); least < 10 || len(lines) > int(o.Marked) || len(lines)+2 < int(least) {
		t.Errorf("tshark saw %d packets with a trace, inserted %+v", len(lines), o)
	}
	for _, line := range lines {
		f := strings.Split(line, "\t")
		if f[0] != fmt.Sprint(spaceA) || !strings.Contains(f[1], fmt.Sprint(nodeID)) || f[2] != "1" && f[3] != "1" || strings.Contains(f[4], "IOAM") || strings.Contains(f[4], "IPv6") || strings.Contains(f[4], "padding") {
			t.Errorf("tshark: %q", line)
		}
	}
}
