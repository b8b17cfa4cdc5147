package analyze

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// TestPoints has three hosts send what they counted of a flow, of which the second link loses packets, and the router some.
func TestPoints(t *testing.T) {
	s := newScene(t)
	s.start(t)
	from := time.Now().Add(-5 * time.Minute).Truncate(time.Second)
	type seen struct {
		iface     string
		direction flow.Direction
		ttl       uint8
		packets   uint64
	}
	const egress, ingress = flow.Egress, flow.Ingress
	for host, list := range map[string][]seen{
		"alpha":   {{"eth0", egress, 64, 1000}},
		"porthos": {{"eth1", ingress, 64, 1000}, {"eth0", egress, 63, 998}},
		"omega":   {{"eth0", ingress, 63, 900}},
	} {
		files := s.certificate(t, host)
		client := s.client(t, files.Cert, files.Key)
		for n := range 3 { // an empty interval before and after it: the flow is over
			var ended store.Ended
			st := store.New(store.Default())
			st.OnEnd(func(e store.Ended) { ended = e })
			at := from.Add(time.Duration(n) * 10 * time.Second)
			iv := st.Begin(at)
			rows := 0
			for _, one := range list {
				if n != 1 {
					break
				}
				rows++
				iv.Add(&flow.Record{
					Iface: one.iface, IfIndex: 2, Direction: one.direction, Family: 4, Proto: 17, SrcPort: 4000, DstPort: 53,
					Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.9.0.1"), TTLMin: one.ttl, TTLMax: one.ttl,
					Counters: flow.Counters{Packets: one.packets, Bytes: one.packets * 100}, First: at.Add(time.Second), Last: at.Add(8 * time.Second),
				})
			}
			iv.End(at.Add(10 * time.Second))
			var encoder store.Encoder
			body := encoder.Append(frame.Begin(nil), &ended)
			frame.Finish(body, 1, uint64(n+1), uint32(rows))
			if status, text, _ := s.push(t, client, body); status != 200 {
				t.Fatalf("%s: %d %s", host, status, text)
			}
		}
	}
	var ways hops.Ways
	client := api.NewClient(filepath.Join(s.dir, "s"))
	if err := client.Points(context.Background(), api.WhyRequest{Filter: "dport 53", Since: "1h"}, &ways); err != nil {
		t.Fatal(err)
	}
	if len(ways.Flows) != 1 || len(ways.Incomplete) > 0 || len(ways.Flows[0].Unconfirmed) > 0 || len(ways.Flows[0].Notes) > 0 {
		t.Fatalf("%+v", ways)
	}
	want := []struct {
		from, to             string
		sent, received, lost uint64
	}{{"alpha", "porthos", 1000, 1000, 0}, {"porthos", "porthos", 1000, 998, 2}, {"porthos", "omega", 998, 900, 98}}
	parts := ways.Flows[0].Parts
	if len(parts) != len(want) {
		t.Fatalf("%+v", parts)
	}
	for i, w := range want {
		if p := parts[i]; p.From[0].Host != w.from || p.To[0].Host != w.to || p.Sent != w.sent || p.Received != w.received || p.Lost != w.lost || p.Margin != 0 {
			t.Errorf("part %d: %+v, want %+v", i, p, w)
		}
	}
	for _, by := range []string{"flow", "dport", "host", "iface"} {
		for _, everywhere := range []bool{false, true} {
			a, err := client.Flows(context.Background(), api.Request{By: by, Everywhere: everywhere})
			if err != nil {
				t.Fatal(err)
			}
			total, repeated, shared := uint64(1000), uint64(2898), uint64(1)
			if everywhere {
				total, repeated, shared = 3898, 0, 0
			}
			if a.Total.Packets != total || a.Repeated.Packets != repeated || a.SharedFlows != shared || a.UnsureFlows != 0 || len(a.Warnings()) > 0 {
				t.Errorf("by %s, everywhere %t: %d packets, %d repeated, %d flows of several hosts, %q", by, everywhere, a.Total.Packets, a.Repeated.Packets, a.SharedFlows, a.Warnings())
			}
		}
	}
	for hosts, want := range map[string]uint64{"porthos": 1000, "omega": 900, "omega,porthos": 1000, "alpha,omega": 1000} {
		if a, err := client.Flows(context.Background(), api.Request{By: "dport", Hosts: hosts}); err != nil || a.Total.Packets != want {
			t.Errorf("%s: %d packets, %v", hosts, a.Total.Packets, err)
		}
	}
	for _, follow := range []bool{false, true} {
		err := client.Follow(context.Background(), api.Request{Hosts: "aramis", Follow: follow}, func(api.Answer) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "no records of host aramis: there are those of alpha, omega, porthos") {
			t.Errorf("follow %t: %v", follow, err)
		}
	}
	if err := client.Points(context.Background(), api.WhyRequest{Filter: "dprt 53"}, &ways); err == nil {
		t.Error("a filter that nobody understands is taken")
	}
}

// TestFollowersCountOnce: intervals of the hosts that a flow passes come one after the other. Once the sender's was there, the flow
// counts at the sender alone, also where that is silent for some time.
func TestFollowersCountOnce(t *testing.T) {
	p, err := query.ParseBy("dport")
	if err != nil {
		t.Fatal(err)
	}
	plan := query.Plan{By: p}
	if err := plan.Check(); err != nil {
		t.Fatal(err)
	}
	interval := func(host string, d flow.Direction, ttl uint8) came {
		var e store.Ended
		st := store.New(store.Default())
		st.OnEnd(func(ended store.Ended) { e = ended })
		iv := st.Begin(time.Unix(0, 0))
		iv.Add(&flow.Record{
			Iface: "eth0", IfIndex: 2, Direction: d, Family: 4, Proto: 17, SrcPort: 4000, DstPort: 53,
			Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.9.0.1"), TTLMin: ttl, TTLMax: ttl,
			Counters: flow.Counters{Packets: 10}, First: time.Unix(1, 0), Last: time.Unix(2, 0),
		})
		iv.End(time.Unix(10, 0))
		return came{host, e}
	}
	sender, router := interval("alpha", flow.Egress, 64), interval("porthos", flow.Ingress, 64)
	recents, number := map[string]*recent{}, uint64(0)
	total := func(plan query.Plan, list ...came) (packets, repeated uint64) {
		number++
		a := (&period{number: number, list: list, recent: recents}).Answer(plan)
		return a.Total.Packets, a.Repeated.Packets
	}
	for i, step := range []struct {
		list            []came
		times           int
		total, repeated uint64
	}{
		{[]came{router}, 1, 10, 0}, // nobody else has seen it yet
		{[]came{sender}, 1, 10, 0},
		{[]came{router}, recentPeriods - 3, 0, 10},
		{[]came{router, sender}, 3, 10, 10},
		{[]came{router}, recentPeriods - 3, 0, 10},
		{[]came{router}, 2 * recentPeriods, 10, 0}, // the sender's are of long ago, at the end
	} {
		var got, again uint64
		for range step.times {
			got, again = total(plan, step.list...)
		}
		if got != step.total || again != step.repeated {
			t.Errorf("step %d: %d packets, %d repeated, want %d, %d", i, got, again, step.total, step.repeated)
		}
	}
	plan.Hosts = []string{"porthos"}
	if got, again := total(plan, router, sender); got != 10 || again != 0 {
		t.Errorf("porthos alone: %d packets, %d repeated", got, again)
	}
	plan.Hosts, plan.Everywhere = nil, true
	if got, _ := total(plan, router, sender); got != 20 {
		t.Errorf("everywhere: %d packets", got)
	}
}
