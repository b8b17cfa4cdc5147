package hops

import (
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// TestLimits: what counts do not say is reported.
func TestLimits(t *testing.T) {
	var points Points
	add := func(host string, d flow.Direction, ttl uint8, packets uint64) {
		t.Helper()
		r := flow.Record{
			Iface: "eth" + host, Direction: d, TTLMin: ttl, TTLMax: ttl, Counters: flow.Counters{Packets: packets},
			First: began, Last: began.Add(10 * time.Second),
		}
		if err := points.Add(host, &r); err != nil {
			t.Fatal(err)
		}
	}
	add("a", flow.Egress, 64, 1000)
	add("b", flow.Ingress, 62, 1010) // behind two routers
	add("b", flow.Egress, 61, 1010)
	path := points.Find(&Facts{Clock: time.Second, Windows: map[string]Window{
		"a": {began.Add(-time.Minute), began.Add(10 * time.Second)}, "b": {began.Add(-time.Minute), began.Add(12 * time.Second)},
	}})
	if len(path.Parts) != 2 || path.Parts[0].Hidden != 2 || path.Parts[0].Gained != 10 || path.Parts[0].Lost != 0 || path.Parts[0].Significant() {
		t.Fatalf("%+v", path)
	}
	if got := path.Parts[0].Margin; got != 303 { // three of ten seconds
		t.Errorf("margin %d", got)
	}
	if len(path.Notes) != 1 || len(path.Unconfirmed) > 0 {
		t.Errorf("notes %q, unconfirmed %q", path.Notes, path.Unconfirmed)
	}
	if err := points.Add("c", &flow.Record{DstPort: 1}); err == nil {
		t.Error("a record of another flow is taken")
	}
	add("c", flow.Ingress, 61, 1010)
	add("c", flow.Egress, 61, 1000)
	add("d", flow.Ingress, 61, 1000)
	add("d", flow.Egress, 61, 1000)
	if path = points.Find(&Facts{}); len(path.Unconfirmed) != 1 {
		t.Errorf("unconfirmed %q", path.Unconfirmed)
	}
}

// TestFragments: packets that a router cuts are more behind it, which is no way without an agent.
func TestFragments(t *testing.T) {
	var points Points
	for _, one := range []struct {
		host               string
		direction          flow.Direction
		ttl                uint8
		packets, fragments uint64
	}{{"a", flow.Egress, 64, 100, 0}, {"b", flow.Ingress, 64, 100, 0}, {"b", flow.Egress, 63, 200, 200}, {"c", flow.Ingress, 63, 198, 198}} {
		r := flow.Record{
			Iface: "eth0", Direction: one.direction, TTLMin: one.ttl, TTLMax: one.ttl,
			Counters: flow.Counters{Packets: one.packets, Fragments: one.fragments}, First: began, Last: began,
		}
		if err := points.Add(one.host, &r); err != nil {
			t.Fatal(err)
		}
	}
	path := points.Find(&Facts{})
	if len(path.Parts) != 3 || path.Parts[1].Gained != 100 || path.Parts[2].Lost != 2 || len(path.Notes) != 1 || len(path.Unconfirmed) != 0 {
		t.Fatalf("%+v", path)
	}
	if want := "between b eth0 and b eth0, packets are cut into fragments: what is lost there is not known from counts"; path.Notes[0] != want {
		t.Errorf("%s", path.Notes[0])
	}
}
