package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
)

// Interfaces of one name, one after the other, are one; what was forgotten is
// not added to.
func TestTotals(t *testing.T) {
	add := func(all *totals, i flow.Iface, proto uint8, packets uint64) {
		d := &flow.Delta{Key: flow.Key{Iface: i, Proto: proto, Direction: flow.Egress}}
		d.Packets, d.Bytes, d.WireBytes = packets, 10*packets, 20*packets
		all.add(d)
	}
	total := func(protocol string, packets uint64) obs.Total {
		return obs.Total{
			Iface: "eth0", Direction: "egress", Protocol: protocol,
			Counters: flow.Counters{Packets: packets, Bytes: 10 * packets, WireBytes: 20 * packets},
		}
	}
	want := func(all *totals, want ...obs.Total) {
		t.Helper()
		got := all.list(func(flow.Iface) (name, netns string) { return "eth0", "" })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	first, second := flow.NewIface(0, 1), flow.NewIface(0, 2)
	all := newTotals()
	add(all, first, 6, 1)
	add(all, second, 6, 2)
	add(all, second, 17, 4)
	want(all, total("tcp", 3), total("udp", 4))
	all.forget(second)
	want(all, total("tcp", 1))
	add(all, second, 17, 8)
	want(all, total("tcp", 1), total("udp", 8))
}
