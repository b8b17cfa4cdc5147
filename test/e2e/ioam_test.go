package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/inband/ioam/ioamtest"
	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/wire/ioam"
)

const transitNode = `
interfaces: [LINKS]
ioam:
  node: {id: 3}
  interfaces: [to-athos:31:both, to-aramis:32:both]
  namespaces: [{id: 123, data: 0xcafe}]
`

// An agent between Linux and a host that ignores IOAM is a hop of each trace, follows
// reloads between two packets, keeps what it is when a reload is wrong, and leaves nothing
// behind.
func TestTransitNode(t *testing.T) {
	t.Parallel()
	l := labtest.New(t, lab.Config{Topology: "chain", MTU: 1500})
	linux := l.Host("athos")
	for _, set := range []string{"ioam6_id=2", "conf.to-alpha.ioam6_enabled=1", "conf.to-alpha.ioam6_id=21", "conf.to-porthos.ioam6_id=22"} {
		must(t, linux, "sysctl", "-qw", "net.ipv6."+set)
	}
	must(t, linux, "ip", "ioam", "namespace", "add", "123", "data", "7")
	a := start(t, setup{host: l.Host("porthos"), config: quick + transitNode})
	c := ioamtest.NewCourier(t, l.Host("alpha"), l.Host("beta"))
	const fields = ioam.HopLimitNodeID | ioam.InterfaceIDs | ioam.TimestampSeconds | ioam.TimestampFraction | ioam.TransitDelay | ioam.NamespaceData
	// hops is the trace of one packet.
	hops := func() []ioam.Hop {
		t.Helper()
		trace, err := ioam.NewTrace(123, fields, 3*fields.NodeSize(0))
		if err != nil {
			t.Fatal(err)
		}
		header, err := ioam.AppendHeader(nil, 0, trace)
		if err != nil {
			t.Fatal(err)
		}
		option := c.Carry(t, header)[4:]
		body, err := ioam.DecodeOption(option[:2+int(option[1])])
		if err != nil {
			t.Fatal(err)
		}
		list, err := body.(*ioam.Trace).Hops()
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	short := func(list []ioam.Hop) (text string) {
		for _, h := range list {
			text += fmt.Sprintf("%d:%d>%d:%x ", h.NodeID, h.Ingress, h.Egress, h.NamespaceData)
		}
		return text
	}
	list := hops()
	if got := short(list); got != "2:21>22:7 3:31>32:cafe " {
		t.Fatalf("hops %s", got)
	}
	if delay, ok := list[1].Delay(); !ok || delay <= 0 || delay > time.Second {
		t.Errorf("transit delay %v", delay)
	}
	if between := list[1].HopLimit; between != list[0].HopLimit-1 {
		t.Errorf("hop limits %d, %d", list[0].HopLimit, between)
	}
	out := must(t, nil, program, "status", "--socket", a.socket)
	for _, want := range []string{"IOAM node 3 (wide -), times in posix: 1 written, 1 completed at egress", "to-athos", "0x0000cafe"} {
		if !strings.Contains(out, want) {
			t.Errorf("the status lacks %q:\n%s", want, out)
		}
	}
	next := strings.NewReplacer("id: 3", "id: 4", "0xcafe", "0xbeef").Replace(transitNode)
	a.reload(t, quick+next, "configuration reloaded")
	if got := short(hops()); got != "2:21>22:7 4:31>32:beef " {
		t.Errorf("after a reload: hops %s", got)
	}
	a.reload(t, quick+strings.Replace(next, "id: 4", "id: 16777216", 1), "ioam.node.id: 16777216 is out of range")
	a.reload(t, quick+strings.Replace(next, "to-aramis:32", "to-aramis:31", 1), "interface id 31 is given twice")
	if got := short(hops()); got != "2:21>22:7 4:31>32:beef " {
		t.Errorf("after a reload that was refused: hops %s", got)
	}
	a.reload(t, quick+strings.Replace(next, "id: 123", "id: 99", 1), "configuration reloaded")
	if got := short(hops()); got != "2:21>22:7 " {
		t.Errorf("with a namespace that the node does not know: hops %s", got)
	}
	status := a.status(t)
	n := ioamservice.StatusOf(&status)
	if n == nil || n.Written != 3 || len(n.Passed) != 1 || n.Passed[0].Reason != "namespace_unknown" || n.Passed[0].Namespace != 123 {
		t.Errorf("status %+v", n)
	}
	a.stop(t)
	if got := short(hops()); got != "2:21>22:7 " {
		t.Errorf("without an agent: hops %s", got)
	}
}
