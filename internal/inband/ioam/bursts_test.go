package ioam

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/marktest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// Options that one host inserts and the other removes leave no trace in what TCP, UDP and ICMPv6 receive, both ways, with
// offloads and without: all of it arrives, and no checksum is wrong. Bursts of TCP, which are cut behind the hook, share a
// sequence number, which the other end counts as neither duplicates nor loss.
func TestInsertionThenRemovalOnHosts(t *testing.T) {
	for _, offloads := range []bool{true, false} {
		t.Run(fmt.Sprintf("offloads %t", offloads), func(t *testing.T) {
			marktest.Attempt(t, func(t *testing.T) string { return pool.thereAndBack(t, offloads) })
		})
	}
}

func (ps *probes) thereAndBack(t *testing.T, offloads bool) (disturbed string) {
	const mtu = 1500
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: mtu})
	if err := l.SetOffloads(marktest.AllOffloads, offloads); err != nil {
		t.Fatal(err)
	}
	alpha, beta := l.Host("alpha"), l.Host("beta")
	spaces := []uint16{spaceA, spaceB} // of what each of them inserts; the other removes it
	var ends []*inserter
	var removed []uint64 // before
	for k, h := range []*lab.Host{alpha, beta} {
		trace := space(t, spaces[k], wire.HopLimitNodeID|wire.InterfaceIDs|wire.TimestampSeconds, 4)
		i := ps.inserts(t, h, headroom.Interface, false, insertionTo("::/0", trace, edge(spaces[k])))
		i.own.Namespaces[1-k].Remove, i.own.ClosedDomain = true, true // closed: datagrams, too
		if err := i.node.Apply(i.own); err != nil {
			t.Fatal(err)
		}
		emptyMaps(t, i.node, "ioam_edges_by_sender", "ioam_sequences")
		ends = append(ends, i)
		removed = append(removed, stats(t, i.node).Removed)
	}
	faults := []map[string]uint64{marktest.Faults(t, alpha), marktest.Faults(t, beta)}
	transfer(t, alpha, beta, nil, 4<<20)
	transfer(t, beta, alpha, nil, 4<<20)
	marktest.Transfers(t, alpha, beta, mtu, ends[0].own.Reserve())
	echo, err := traffic.Echo(t.Context(), alpha, traffic.EchoConfig{To: beta.Addr6(), Count: 20, Size: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("echo: %+v", echo)
	for k, i := range ends {
		if moved := marktest.NewFaults(faults[k], marktest.Faults(t, i.Host)); len(moved) > 0 {
			t.Errorf("%s could not use packets: %v", i.Name, moved)
		}
		o, s := i.outcome(t), stats(t, i.node)
		if s.Removed < removed[k]+400 || o.Marked < 400 || o.Passed["broken"] > 0 {
			t.Errorf("%s: removed %d, %+v", i.Name, s.Removed-removed[k], o)
		}
		if o.Fallbacks > 0 {
			disturbed = fmt.Sprintf("%s: %+v", i.Name, o)
		}
		if what := i.numbered(t, spaces[1-k], ends[1-k].Addr6(), offloads); what != "" {
			disturbed = what
		}
	}
	return disturbed
}

// numbered is what is wrong with the numbers of what arrived from a host.
func (i *inserter) numbered(t *testing.T, space uint16, from netip.Addr, bursts bool) string {
	t.Helper()
	list, err := i.node.Edges()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Namespace != space || e.Source != from {
			continue
		}
		if e.Received < 400 || !e.Sequence {
			t.Errorf("%s: %+v", i.Name, e)
		}
		if e.Lost > 0 || e.Duplicates+e.Restarts > 0 { // senders on two processors overtake each other
			return fmt.Sprintf("%s, bursts %t: %+v", i.Name, bursts, e)
		}
		return ""
	}
	t.Errorf("%s knows no sender %v: %+v", i.Name, from, list)
	return ""
}
