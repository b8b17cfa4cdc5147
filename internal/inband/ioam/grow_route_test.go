package ioam

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/marktest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// growingRoute is the chain, where alpha inserts incremental traces, athos and aramis make them longer, and beta removes
// them.
type growingRoute struct {
	*lab.Lab
	from          *inserter
	athos, aramis *Registrar
	to            *Registrar
}

func newGrowingRoute(t *testing.T, aramis Transit) *growingRoute {
	t.Helper()
	g := &growingRoute{Lab: labtest.New(t, lab.Config{Topology: "chain", MTU: 1500})}
	const typ = wire.HopLimitNodeID | wire.InterfaceIDs | wire.TimestampSeconds | wire.TimestampFraction | wire.TransitDelay
	tr, err := wire.NewIncrementalTrace(spaceA, typ, 4*typ.NodeSize(0))
	if err != nil {
		t.Fatal(err)
	}
	in := insertionTo("::/0", tr)
	in.Policy.To = netip.PrefixFrom(g.Host("beta").Addr6(), 128)
	g.from = pool.inserts(t, g.Host("alpha"), headroom.Interface, false, in)
	transit := func(name string, where Transit, id uint32, interfaces ...string) *Registrar {
		n := growing()
		n.ID, n.Interfaces = id, nil
		for k, i := range interfaces {
			n.Interfaces = append(n.Interfaces, Interface{Name: i, ID: uint16(id)*10 + uint16(k), Role: RoleBoth})
		}
		n.Namespaces[0].Remove = name == "beta"
		return attachNode(t, g.Host(name), Config{Time: wire.POSIX, Transit: where}, n)
	}
	g.athos = transit("athos", TransitTC, 101, "to-alpha", "to-porthos")
	g.aramis = transit("aramis", aramis, 102, "to-porthos", "to-beta")
	g.to = transit("beta", TransitTC, 103, "to-aramis")
	return g
}

// wroteInto are options that a node wrote into.
func wroteInto(t *testing.T, r *Registrar) uint64 {
	t.Helper()
	s, err := r.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s.Written
}

// A TCP transfer loses nothing where two routers make the traces in its packets longer, whoever cuts the bursts; the end of
// the domain knows the path with all of its nodes, and removes the traces.
func TestGrowOnRoute(t *testing.T) {
	g := newGrowingRoute(t, TransitTC)
	alpha, beta := g.Host("alpha"), g.Host("beta")
	before := map[string]map[string]uint64{}
	for _, h := range g.Hosts() {
		before[h.Name] = marktest.Faults(t, h)
	}
	for _, off := range []lab.Offload{0, lab.TSO, lab.TSO | lab.GSO, lab.VethDefault} {
		if off != 0 {
			if err := g.SetOffloads(off, false); err != nil {
				t.Fatal(err)
			}
		}
		athos, aramis := wroteInto(t, g.athos), wroteInto(t, g.aramis)
		transfer(t, alpha, beta, nil, 4<<20)
		if a, b := wroteInto(t, g.athos)-athos, wroteInto(t, g.aramis)-aramis; a < 50 || b < 50 {
			t.Errorf("without %v: %d and %d traces grew", off, a, b)
		}
		if err := g.SetOffloads(lab.VethDefault, true); err != nil {
			t.Fatal(err)
		}
	}
	for name, r := range map[string]*Registrar{"athos": g.athos, "aramis": g.aramis, "beta": g.to} {
		if why := reasons(t, r); len(why) > 0 {
			t.Errorf("%s: %v", name, why)
		}
	}
	for _, h := range g.Hosts() {
		if moved := marktest.NewFaults(before[h.Name], marktest.Faults(t, h)); len(moved) > 0 {
			t.Errorf("%s could not use packets: %v", h.Name, moved)
		}
	}
	g.bursts(t)
	if o := g.from.outcome(t); o.Marked < 1000 || o.Fallbacks > 0 {
		t.Errorf("%+v", o)
	}
	if s, err := g.to.Stats(); err != nil || s.Removed < 200 {
		t.Errorf("%+v, %v", s, err)
	}
	g.knowsPath(t)
}

// bursts sends UDP bursts, with checksums that are left to the device and with others: none is lost.
func (g *growingRoute) bursts(t *testing.T) {
	t.Helper()
	closed := g.from.own
	closed.ClosedDomain = true
	if err := g.from.node.Apply(closed); err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		if err := g.SetOffloads(lab.TxChecksum, on); err != nil {
			t.Fatal(err)
		}
		before := wroteInto(t, g.athos)
		if err := marktest.Bursts(t, g.Host("alpha"), g.Host("beta"), 20, 8, 1000, 0); err != nil && !errors.Is(err, unix.EIO) { // kernels before 6.11 refuse to send some
			t.Errorf("checksums left to the device %t: %v", on, err)
		}
		if n := wroteInto(t, g.athos) - before; n == 0 && on {
			t.Errorf("no burst grew; athos: %v, alpha: %+v", reasons(t, g.athos), g.from.outcome(t))
		}
		t.Logf("checksums left to the device %t: %d traces grew; athos %v, aramis %v", on, wroteInto(t, g.athos)-before, reasons(t, g.athos), reasons(t, g.aramis))
	}
	if err := g.SetOffloads(lab.VethDefault, true); err != nil {
		t.Fatal(err)
	}
}

// knowsPath awaits the path at its end.
func (g *growingRoute) knowsPath(t *testing.T) {
	t.Helper()
	var path *Path
	await.True(t, "the path", func() bool {
		for _, p := range g.to.Paths() {
			if p.Namespace == spaceA {
				path = &p
				return true
			}
		}
		return false
	})
	var ids []uint32
	for k, hop := range path.Hops {
		ids = append(ids, hop.NodeID)
		if delay, ok := hop.Delay(); (k == 1 || k == 2) && (!ok || delay <= 0 || delay > time.Second) {
			t.Errorf("transit delay of hop %d: %v", k, delay)
		}
		if want := []uint8{64, 63, 61, 60}[k&3]; hop.HopLimit != want { // between them is a router that writes nothing
			t.Errorf("hop %d: hop limit %d, want %d", k, hop.HopLimit, want)
		}
	}
	if !slices.Equal(ids, []uint32{nodeID, 101, 102, 103}) || path.Overflow || path.Hops[1].Ingress != 1010 || path.Hops[1].Egress != 1011 || path.Hops[3].Ingress != 1030 {
		t.Errorf("nodes %v: %+v", ids, path)
	}
}

// Where a link takes less than those at the ends, connections go on, and soon as fast as without traces. One node sees
// packets at XDP first.
func TestGrowOnNarrowRoute(t *testing.T) {
	g := newGrowingRoute(t, TransitXDP)
	alpha, beta := g.Host("alpha"), g.Host("beta")
	for _, end := range [][2]string{{"porthos", "to-aramis"}, {"aramis", "to-porthos"}} {
		if err := g.Host(end[0]).Do(func() error { return marktest.SetMTU(end[1], 1400) }); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Duration(0)
	for n := range 5 {
		r, err := traffic.Bulk(t.Context(), alpha, beta, traffic.BulkConfig{To: netip.AddrPortFrom(beta.Addr6(), 0), Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		took = r.Duration
		t.Logf("transfer %d took %v, %d segments were sent again: %+v; athos %v, aramis %v", n, took, r.Sender.Retransmits, g.from.outcome(t), reasons(t, g.athos), reasons(t, g.aramis))
		if took > 15*time.Second {
			t.Errorf("transfer %d took %v", n, took)
		}
	}
	if took > 2*time.Second || wroteInto(t, g.aramis) == 0 {
		t.Errorf("the last transfer took %v; %d traces grew behind the narrow link", took, wroteInto(t, g.aramis))
	}
	// Nothing acknowledges datagrams: once the path is known, they get a trace only if they fit with all that nodes add.
	closed := g.from.own
	closed.ClosedDomain = true
	emptyMaps(t, g.from.node, "mark_paths", "ioam_guards")
	if err := g.from.node.Apply(closed); err != nil {
		t.Fatal(err)
	}
	var before marktest.Outcome
	for _, known := range []bool{false, true} {
		before = g.from.outcome(t)
		for size := 1200; size <= 1352; size += 8 {
			d, err := traffic.Datagrams(t.Context(), alpha, beta, traffic.DatagramConfig{To: netip.AddrPortFrom(beta.Addr6(), 0), Count: 3, Size: size})
			if errors.Is(err, unix.EMSGSIZE) { // the stack knows the path, too
				break
			}
			if err != nil || known && d.Distinct != 3 {
				t.Errorf("%d of 3 datagrams of %d bytes arrived, %v", d.Distinct, size, err)
			}
		}
	}
	if o := g.from.outcome(t); o.Fallbacks > before.Fallbacks || o.Passed["path_mtu"] == before.Passed["path_mtu"] || o.Marked < before.Marked+6 {
		t.Errorf("%+v, before %+v", o, before)
	}
}
