package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/inband/ioam/ioamtest"
	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/wire/ioam"
)

const lastNode = `
interfaces: [to-*]
ioam:
  node: {id: 5}
  interfaces: [to-aramis:51:both]
  namespaces: [{id: 123, remove: true}]
`

// The traces that Linux nodes fill are one path at the agent where they end, with its hops
// in order and their delays, in every format.
func TestPaths(t *testing.T) {
	t.Parallel()
	l := labtest.New(t, lab.Config{Topology: "chain", MTU: 1500})
	for i, node := range []struct{ host, in, out string }{{"athos", "alpha", "porthos"}, {"porthos", "athos", "aramis"}, {"aramis", "porthos", "beta"}} {
		h := l.Host(node.host)
		for _, set := range []string{
			fmt.Sprint("ioam6_id=", 2+i), fmt.Sprintf("conf.to-%s.ioam6_enabled=1", node.in),
			fmt.Sprintf("conf.to-%s.ioam6_id=%d1", node.in, 2+i), fmt.Sprintf("conf.to-%s.ioam6_id=%d2", node.out, 2+i),
		} {
			must(t, h, "sysctl", "-qw", "net.ipv6."+set)
		}
		must(t, h, "ip", "ioam", "namespace", "add", "123", "data", "7")
	}
	a := start(t, setup{host: l.Host("beta"), config: quick + lastNode})
	c := ioamtest.NewCourier(t, l.Host("alpha"), l.Host("beta"))
	const fields = ioam.HopLimitNodeID | ioam.InterfaceIDs | ioam.TimestampSeconds | ioam.TimestampFraction | ioam.NamespaceData
	const packets = 30
	for range packets {
		trace, err := ioam.NewTrace(123, fields, 4*fields.NodeSize(0))
		if err != nil {
			t.Fatal(err)
		}
		header, err := ioam.AppendHeader(nil, 0, trace)
		if err != nil {
			t.Fatal(err)
		}
		c.Send(t, header)
	}
	var answer ioamservice.Paths
	await.Success(t, func() error {
		answer = ioamservice.Paths{}
		if err := json.Unmarshal([]byte(must(t, nil, program, "paths", "-o", "json", "--socket", a.socket)), &answer); err != nil {
			t.Fatal(err)
		}
		if len(answer.Paths) != 1 || answer.Paths[0].Packets != packets {
			return fmt.Errorf("paths %+v", answer.Paths)
		}
		return nil
	})
	p := answer.Paths[0]
	hops := ""
	for _, h := range p.Hops {
		out := "-"
		if h.Egress != nil {
			out = fmt.Sprint(*h.Egress)
		}
		hops += fmt.Sprintf("%d:%d>%s ", *h.NodeID, *h.Ingress, out)
	}
	if hops != "2:21>22 3:31>32 4:41>42 5:51>- " || p.Namespace != 123 {
		t.Errorf("namespace %d, hops %s", p.Namespace, hops)
	}
	for i, h := range p.Hops[:3] {
		if h.Link == nil || h.Link.Count != packets || h.Relative || h.Link.P50 <= 0 || h.Link.P50 > time.Second {
			t.Errorf("link of hop %d: %+v", i+1, h.Link)
		}
	}
	if p.Delay == nil || p.Delay.Min < p.Hops[0].Link.Min+p.Hops[1].Link.Min+p.Hops[2].Link.Min {
		t.Errorf("delay %+v", p.Delay)
	}
	run := func(args ...string) string {
		return must(t, nil, append([]string{program, "paths", "--socket", a.socket}, args...)...)
	}
	for _, want := range []struct {
		args []string
		text string
	}{
		{nil, "2 > 3 > 4 > 5"},
		{[]string{p.ID[:5]}, "path " + p.ID + "  namespace 123"},
		{[]string{p.ID, "-o", "csv"}, p.ID + ",123,F40000"},
		{[]string{"-o", "jsonl"}, `"node_id":4`},
	} {
		if out := run(want.args...); !strings.Contains(out, want.text) {
			t.Errorf("paths %v lacks %q:\n%s", want.args, want.text, out)
		}
	}
	if len(p.Flows) != 1 || p.FlowCount != 1 || p.Flows[0].Packets != packets || p.Flows[0].Proto != 17 {
		t.Errorf("flows %+v", p.Flows)
	}
	if out := must(t, nil, program, "status", "--socket", a.socket); !strings.Contains(out, fmt.Sprintf("IOAM paths: 1 of 128, %d traces", packets)) {
		t.Errorf("status:\n%s", out)
	}
	a.stop(t)
}
