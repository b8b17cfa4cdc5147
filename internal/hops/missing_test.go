package hops

import (
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// TestMissing: a flow that leaves for a destination which counts and saw none is lost on that link; of any other, nothing is said.
func TestMissing(t *testing.T) {
	dst := netip.MustParseAddr("10.9.0.1")
	from, to := End{Node{Host: "b"}, "eth1"}, End{Node{Host: "c"}, "eth0"}
	facts := &Facts{
		Windows:  map[string]Window{"a": {began, began.Add(time.Minute)}, "b": {began, began.Add(time.Minute)}, "c": {began, began.Add(20 * time.Second)}},
		Expected: func(at End, a netip.Addr) (End, bool) { return to, at == from && a == dst },
	}
	for _, c := range []struct {
		dst           netip.Addr
		last          time.Duration // of the flow
		parts, margin int
	}{{dst, 15 * time.Second, 3, 0}, {dst, 40 * time.Second, 3, 100}, {netip.MustParseAddr("10.9.0.2"), 15 * time.Second, 2, 0}} {
		var p Points
		for _, seen := range []struct {
			host, iface string
			direction   flow.Direction
			ttl         uint8
		}{{"a", "eth0", flow.Egress, 64}, {"b", "eth0", flow.Ingress, 64}, {"b", "eth1", flow.Egress, 63}} {
			r := flow.Record{
				Iface: seen.iface, Direction: seen.direction, Dst: c.dst, TTLMin: seen.ttl, TTLMax: seen.ttl, First: began.Add(10 * time.Second), Last: began.Add(c.last),
				Counters: flow.Counters{Packets: 100},
			}
			if err := p.Add(seen.host, &r); err != nil {
				t.Fatal(err)
			}
		}
		path := p.Find(facts)
		if len(path.Parts) != c.parts {
			t.Fatalf("%+v: %+v", c, path)
		}
		if last := path.Parts[len(path.Parts)-1]; c.parts == 3 && (last.To[0].String() != "c eth0" || last.Lost != 100 || last.Received != 0 || last.Margin != uint64(c.margin) || len(path.Notes) > 0) {
			t.Errorf("%+v: %+v", c, path)
		}
		if c.parts == 2 && len(path.Notes) != 1 {
			t.Errorf("%+v: %+v", c, path.Notes)
		}
	}
}
