package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
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
interfaces: [LINKS]
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
	const packets = 30
	sendTraces(t, c, packets)
	var p ioamservice.Path
	await.Success(t, func() error {
		list := pathsOf(t, a)
		if len(list) != 1 || list[0].Packets != packets {
			return fmt.Errorf("paths %+v", list)
		}
		p = list[0]
		return nil
	})
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
	flowsOnPath(t, a, &p)
	followsPaths(t, a, c, l.Host("porthos"), p.ID)
	a.stop(t)
}

// pathsOf are those that the agent has.
func pathsOf(t *testing.T, a *agent) []ioamservice.Path {
	t.Helper()
	var answer ioamservice.Paths
	if err := json.Unmarshal([]byte(must(t, nil, program, "paths", "-o", "json", "--socket", a.socket)), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Paths
}

// emptyTrace is a Hop-by-Hop header with a trace for four nodes.
func emptyTrace(t *testing.T) []byte {
	t.Helper()
	const fields = ioam.HopLimitNodeID | ioam.InterfaceIDs | ioam.TimestampSeconds | ioam.TimestampFraction | ioam.NamespaceData
	trace, err := ioam.NewTrace(123, fields, 4*fields.NodeSize(0))
	if err != nil {
		t.Fatal(err)
	}
	header, err := ioam.AppendHeader(nil, 0, trace)
	if err != nil {
		t.Fatal(err)
	}
	return header
}

// flowsOnPath checks that records are found by their path, and are on it.
func flowsOnPath(t *testing.T, a *agent, p *ioamservice.Path) {
	t.Helper()
	out := must(t, nil, program, "flows", "--socket", a.socket, "--since", "10m", "-o", "json", "--by", "ioam.path,ioam.nodes,proto", "nodes *-3-* and proto udp")
	var answer struct {
		Rows []struct {
			Packets uint64
			IOAM    struct {
				Path, Nodes string
				Hops        int
				Packets     uint64
				Delay       struct {
					Count uint64
					Mean  time.Duration `json:"mean_ns"`
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Rows) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	r := answer.Rows[0].IOAM
	if r.Path != p.ID || r.Nodes != "2-3-4-5" || r.Hops != 4 || r.Packets != p.Packets || r.Delay.Count != p.Packets || r.Delay.Mean != p.Delay.Mean {
		t.Errorf("row %+v of path %s with a mean of %v", answer.Rows[0], p.ID, p.Delay.Mean)
	}
}

// followsPaths changes the path, and finds the change in --follow; single traces are in --raw.
func followsPaths(t *testing.T, a *agent, c *ioamtest.Courier, changes *lab.Host, before string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follow := spawn(t, nil, exec.CommandContext(ctx, program, "paths", "--follow", "-o", "jsonl", "--socket", a.socket))
	raw := spawn(t, nil, exec.CommandContext(ctx, program, "paths", "--raw", "-o", "jsonl", "--socket", a.socket))
	events := func(p *process) (list []ioamservice.PathEvent) {
		for line := range strings.Lines(p.stdout.String()) {
			var e ioamservice.PathEvent
			if !strings.HasSuffix(line, "\n") {
				break
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			list = append(list, e)
		}
		return list
	}
	id := 100
	await.Success(t, func() error { // until both follow
		id++
		must(t, changes, "sysctl", "-qw", fmt.Sprint("net.ipv6.ioam6_id=", id))
		sendTraces(t, c, 2)
		if follow.stdout.String() == "" || raw.stdout.String() == "" {
			return fmt.Errorf("no event: %s %s", follow.stderr, raw.stderr)
		}
		return nil
	})
	// Of two paths on two processors in one interval, nobody knows which was the last.
	drains := a.status(t).Drain.Count + 1 // with the one under way
	await.True(t, "the end of the interval", func() bool { return a.status(t).Drain.Count > drains })
	id++
	must(t, changes, "sysctl", "-qw", fmt.Sprint("net.ipv6.ioam6_id=", id))
	sendTraces(t, c, 3)
	var now string
	await.Success(t, func() error {
		for _, e := range events(follow) {
			if e.Event == "new" && len(e.Hops) == 4 && *e.Hops[1].NodeID == uint32(id) {
				now = e.Path
			}
			if e.Event == "change" && e.Path == now && now != "" && e.From != now && e.Flows != nil && *e.Flows == 1 {
				return nil
			}
		}
		return fmt.Errorf("no change to node %d: %s", id, follow.stdout)
	})
	await.Success(t, func() error {
		n := 0
		for _, e := range events(raw) {
			if e.Event == "trace" && e.Path == now && e.Hops[0].Time != nil && len(e.Hops) == 4 {
				n++
			}
		}
		if n != 3 {
			return fmt.Errorf("%d traces of path %s: %s", n, now, raw.stdout)
		}
		return nil
	})
	if now == before {
		t.Error("the path has not changed")
	}
	if out := must(t, nil, program, "status", "--socket", a.socket); strings.Contains(out, ", 0 changes") {
		t.Errorf("status:\n%s", out)
	}
}
