package store

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// tracedFlow is a flow to a host, on a path with these nodes.
func tracedFlow(host byte, id flow.IOAMPathID, nodes string, lost int64) flow.Record {
	return flow.Record{
		Iface: "eth0", IfIndex: 2, Family: 6, Proto: 17, SrcPort: 4000, DstPort: 5000,
		Src: netip.MustParseAddr("2001:db8:1::1"), Dst: netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: host}),
		Counters: flow.Counters{Packets: 10, Bytes: 1000}, First: at(0), Last: at(1),
		IOAM: &flow.IOAM{
			IOAMPath: flow.IOAMPath{ID: id, Namespace: 123, Hops: uint8(len(nodes)+1) / 2, Nodes: nodes}, Packets: 10, Received: 10, Lost: lost,
			Delay: flow.Delays{Count: 10, Sum: 1000, Min: 50, Max: 150 + uint64(host)},
		},
	}
}

// Rows are grouped by path; a row of several paths has what these agree on, and that of one
// flow its latest path.
func TestRowsOfPaths(t *testing.T) {
	s := New(Default())
	untraced := tracedFlow(4, 0, "", 0)
	untraced.IOAM = nil
	fill(s, 0, 1, tracedFlow(1, 0xa, "1-2-4", 1), tracedFlow(2, 0xb, "1-3-4", 2), tracedFlow(3, 0xc, "1-3-4", 3), untraced)
	show := func(w *query.Row) string {
		if w.IOAM == nil {
			return "none"
		}
		i := w.IOAM
		return fmt.Sprintf("%s %s %d hops: %d lost, %d delays to %d", i.ID, i.Nodes, i.Hops, i.Lost, i.Delay.Count, i.Delay.Max)
	}
	for _, tt := range []struct {
		by   string
		want []string
	}{
		{"ioam.path", []string{"none", "00000000000a 1-2-4 3 hops: 1 lost, 10 delays to 151", "00000000000b 1-3-4 3 hops: 2 lost, 10 delays to 152", "00000000000c 1-3-4 3 hops: 3 lost, 10 delays to 153"}},
		{"ioam.nodes", []string{" 1-3-4 3 hops: 5 lost, 20 delays to 153", "none", "00000000000a 1-2-4 3 hops: 1 lost, 10 delays to 151"}},
		{"iface", []string{"  3 hops: 6 lost, 30 delays to 153"}},
	} {
		a := ask(t, s, query.Plan{By: parseBy(t, tt.by)})
		if len(a.Rows) != len(tt.want) {
			t.Errorf("by %s: %d rows", tt.by, len(a.Rows))
			continue
		}
		for i := range a.Rows {
			if got := show(&a.Rows[i]); got != tt.want[i] {
				t.Errorf("by %s, row %d: %s, want %s", tt.by, i, got, tt.want[i])
			}
		}
	}
	fill(s, 1, 2, tracedFlow(1, 0xd, "1-5-4", 1))
	a := ask(t, s, query.Plan{By: query.ByFlow(), Sort: "path_lost"})
	for i := range a.Rows {
		if w := &a.Rows[i]; w.Dst.As16()[15] == 1 && show(w) != "00000000000d 1-5-4 3 hops: 2 lost, 20 delays to 151" {
			t.Errorf("a flow that moved: %s", show(w))
		}
	}
	if first := a.Rows[0].IOAM; first == nil || first.Lost != 3 {
		t.Errorf("sorted by loss: %+v", first)
	}
}
