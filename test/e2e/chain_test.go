package e2e

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/inband/ioam/ioamtest"
	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/wire/ioam"
)

// chain is alpha – athos – porthos – aramis – beta. Linux's own node is on athos; agents are on
// the others; a packet is longer in porthos. alpha inserts traces into TCP.
type chain struct {
	*lab.Lab
	alpha, porthos, aramis, beta *agent
}

const (
	chainFields = ioam.HopLimitNodeID | ioam.InterfaceIDs | ioam.TimestampSeconds | ioam.TimestampFraction | ioam.TransitDelay | ioam.NamespaceData
	chainSlow   = 200 * time.Microsecond
)

func newChain(t *testing.T) *chain {
	t.Helper()
	c := &chain{Lab: labtest.New(t, lab.Config{Topology: "chain", Slow: map[string]time.Duration{"porthos": chainSlow}})}
	linux := c.Host("athos")
	for _, set := range []string{"ioam6_id=2", "conf.to-alpha.ioam6_enabled=1", "conf.to-alpha.ioam6_id=21", "conf.to-porthos.ioam6_id=22"} {
		must(t, linux, "sysctl", "-qw", "net.ipv6."+set)
	}
	must(t, linux, "ip", "ioam", "namespace", "add", "123", "data", "7")
	ready := map[*agent]chan struct{}{}
	for _, n := range []struct {
		of         **agent
		host       string
		interfaces string
		more       string
	}{
		{&c.alpha, "alpha", "to-athos:11", fmt.Sprintf(
			"}]\n  insert: [{to: %q, proto: tcp, every: 1, mode: inline, namespace: 123, size: %d, trace: [%s]",
			c.Host("beta").Interfaces[0].Addr6.Masked(), 5*chainFields.NodeSize(0),
			"hop_limit_node_id, interface_ids, timestamp_seconds, timestamp_fraction, transit_delay, namespace_data")},
		{&c.porthos, "porthos", "to-athos:31, to-aramis:32", ""},
		{&c.aramis, "aramis", "to-porthos:41, {name: to-beta, id: 42, roles: [99:none]}", "}, {id: 99"},
		{&c.beta, "beta", "to-aramis:51", ", remove: true"},
	} {
		id := map[string]int{"alpha": 1, "porthos": 3, "aramis": 4, "beta": 5}[n.host]
		from, netns := c.Host(n.host), ""
		if n.host == "beta" {
			from, netns = nil, from.Netns // one agent for other namespaces knows their interfaces as well
		}
		a, ok := launch(t, setup{host: from, config: quick + fmt.Sprintf(
			"interfaces: [to-*]\nnetns: [%s]\nioam:\n  node: {id: %d}\n  interfaces: [%s]\n  namespaces: [{id: 123, data: %d%s}]\n", netns, id, n.interfaces, id, n.more)})
		a.host = c.Host(n.host)
		*n.of, ready[a] = a, ok
	}
	for a, ok := range ready {
		select {
		case <-ok:
		case <-time.After(await.Patience):
			t.Fatalf("the agent on %s was not ready within %v", a.host.Name, await.Patience)
		}
	}
	return c
}

// header is a Hop-by-Hop Options header with an empty trace for the four nodes behind alpha.
func header(t *testing.T) []byte {
	t.Helper()
	trace, err := ioam.NewTrace(123, chainFields, 4*chainFields.NodeSize(0))
	if err != nil {
		t.Fatal(err)
	}
	h, err := ioam.AppendHeader(nil, 0, trace)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// paths are what beta's agent reports, once it has so many packets.
func (c *chain) paths(t *testing.T, least uint64) (answer ioamservice.Paths) {
	t.Helper()
	await.Success(t, func() error {
		answer = ioamservice.Paths{}
		if err := json.Unmarshal([]byte(must(t, nil, program, "paths", "-o", "json", "--socket", c.beta.socket)), &answer); err != nil {
			return err
		}
		var packets uint64
		for _, p := range answer.Paths {
			packets += p.Packets
		}
		if packets < least {
			return notYet("%d packets of %d in %+v", packets, least, answer)
		}
		return nil
	})
	return answer
}

// Traces pass a Linux node and three agents. They are one path, of which the slow hop is the slowest;
// what is on the wire reads the same in tshark and in waymark decode; and a TCP transfer into whose
// packets an agent inserts traces arrives as it was sent, as bursts and as single packets, and without
// them.
func TestChain(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	alpha, beta := c.Host("alpha"), c.Host("beta")

	const count = 100
	capture := c.capture(t, "aramis", "to-beta", count)
	sent, err := traffic.Datagrams(ctx, alpha, beta, traffic.DatagramConfig{
		To: netip.AddrPortFrom(beta.Addr6(), 9), Count: count, Size: 200, Interval: 2 * time.Millisecond, HopByHop: header(t),
	})
	if err != nil || sent.Distinct != count {
		t.Fatalf("%d datagrams of %d arrived, %v", sent.Distinct, count, err)
	}
	c.checkPath(t, count)
	c.checkCapture(t, capture(), count)

	var ended, resent uint64
	for _, bursts := range []bool{true, false} {
		if err := c.SetOffloads(lab.TSO|lab.GSO, bursts); err != nil {
			t.Fatal(err)
		}
		r, err := traffic.Bulk(ctx, alpha, beta, traffic.BulkConfig{
			To: netip.AddrPortFrom(beta.Addr6(), 0), Bytes: 3_000_000,
		})
		if err != nil {
			t.Fatalf("bursts %t: %v", bursts, err)
		}
		resent += uint64(r.Sender.Retransmits)
		ended = c.checkInserted(t, ended+2000, resent)
	}
	var written []uint64
	for _, a := range []*agent{c.porthos, c.aramis, c.beta} {
		s := a.status(t)
		n := ioamservice.StatusOf(&s)
		if n == nil || len(n.Passed) > 0 {
			t.Fatalf("node on %s: %+v", a.host.Name, n)
		}
		written = append(written, n.Written)
	}
	if written[0] < 2000 || written[1] != written[0] || written[2] != written[0] {
		t.Errorf("traces written by the nodes: %d", written)
	}
	c.checkBorder(t)
	for _, a := range []*agent{c.alpha, c.porthos, c.aramis, c.beta} {
		a.stop(t)
	}
}

// checkPath: five nodes were passed, in order, with the delay that the lab added.
func (c *chain) checkPath(t *testing.T, packets uint64) {
	t.Helper()
	answer := c.paths(t, packets)
	if len(answer.Paths) != 1 || answer.Paths[0].Packets != packets {
		t.Fatalf("paths %+v", answer.Paths)
	}
	p := answer.Paths[0]
	if hops := hopsOf(p); hops != "2:21>22 3:31>32 4:41>42 5:51>- " {
		t.Fatalf("hops %s", hops)
	}
	if p.Hops[0].Transit != nil {
		t.Errorf("Linux reports a transit delay: %+v", p.Hops[0].Transit)
	}
	slow, fast := p.Hops[1].Transit, p.Hops[2].Transit
	if slow == nil || fast == nil || slow.Min < chainSlow || slow.P50 > 2*chainSlow || fast.P50 > chainSlow/2 {
		t.Errorf("transit delays: porthos %+v, aramis %+v; porthos is slowed by %v", slow, fast, chainSlow)
	}
}

// hopsOf are the nodes and interfaces of a path.
func hopsOf(p ioamservice.Path) (hops string) {
	id := func(n *uint16) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	for _, h := range p.Hops {
		hops += fmt.Sprintf("%d:%s>%s ", *h.NodeID, id(h.Ingress), id(h.Egress))
	}
	return hops
}

// checkInserted: all traces that alpha inserts end at beta, with all five nodes in them, but for those of segments
// that were lost and sent again. It waits for so many at least, and returns how many.
func (c *chain) checkInserted(t *testing.T, least, resent uint64) (ended uint64) {
	t.Helper()
	await.Success(t, func() error {
		foreign := ""
		for _, p := range c.paths(t, 2000).Paths {
			switch hops := hopsOf(p); hops {
			case "1:->11 2:21>22 3:31>32 4:41>42 5:51>- ":
				ended = p.Packets
			case "2:21>22 3:31>32 4:41>42 5:51>- ": // those that the program on alpha sent
			default:
				foreign += hops
			}
		}
		s := c.alpha.status(t)
		in := ioamservice.StatusOf(&s).Insertions
		if len(in) != 1 || ended < least || ended > in[0].Inserted || in[0].Inserted > ended+resent || foreign != "" {
			return notYet("%d traces of %+v ended at beta, %d segments were sent again; alpha passed %+v; unexpected paths %q",
				ended, in, resent, ioamservice.StatusOf(&s).Passed, foreign)
		}
		return nil
	})
	return ended
}

// checkBorder: to beta, aramis is the border of namespace 99. It drops and counts what comes from there; options of
// a namespace that nobody knows pass as they are.
func (c *chain) checkBorder(t *testing.T) {
	t.Helper()
	outside := ioamtest.NewCourier(t, c.Host("beta"), c.Host("alpha"))
	trace := func(namespace uint16) []byte {
		t.Helper()
		tr, err := ioam.NewTrace(namespace, ioam.HopLimitNodeID, 12)
		if err != nil {
			t.Fatal(err)
		}
		h, err := ioam.AppendHeader(nil, 0, tr)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	const packets = 50
	for range packets {
		outside.Send(t, trace(99))
	}
	// Those before it would arrive first.
	foreign := trace(98)
	if got := outside.Carry(t, foreign); !slices.Equal(got[2:], foreign[2:]) {
		t.Errorf("a foreign option arrived as % x, not % x", got, foreign)
	}
	s := c.aramis.status(t)
	dropped := uint64(0)
	for _, p := range ioamservice.StatusOf(&s).Passed {
		if p.Iface == "to-beta" && p.Direction == "ingress" && p.Reason == "border_dropped" && p.Namespace == 99 {
			dropped = p.Packets
		}
	}
	if dropped != packets {
		t.Errorf("the border dropped %d packets of %d: %+v", dropped, packets, ioamservice.StatusOf(&s).Passed)
	}
}

// capture captures UDP packets that leave by an interface; the result waits for so many.
func (c *chain) capture(t *testing.T, host, iface string, packets int) (file func() string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "chain.pcap")
	cmd := exec.Command("tcpdump", "-U", "-i", iface, "-Q", "out", "-c", fmt.Sprint(packets), "-w", name, "ip6", "proto", "0")
	p := spawn(t, c.Host(host), cmd)
	await.Success(t, func() error {
		if !strings.Contains(p.stderr.String(), "listening on") {
			return notYet("tcpdump says %s", p.stderr)
		}
		return nil
	})
	return func() string {
		t.Helper()
		select {
		case <-p.ended:
		case <-time.After(await.Patience):
			p.signal(unix.SIGINT)
			t.Fatalf("tcpdump captured fewer than %d packets: %s", packets, p.stderr)
		}
		return name
	}
}

// checkCapture: tshark and waymark decode agree about every field, and find nothing wrong.
func (c *chain) checkCapture(t *testing.T, file string, packets int) {
	t.Helper()
	all, err := csv.NewReader(strings.NewReader(must(t, nil, program, "decode", "-o", "csv", "--show", "ioam", file))).ReadAll()
	if err != nil || len(all) < 2 {
		t.Fatal(errors.Join(err, fmt.Errorf("%d lines", len(all))))
	}
	var rows []map[string]string
	for _, values := range all[1:] {
		row := map[string]string{}
		for i, v := range values {
			row[all[0][i]] = v
		}
		rows = append(rows, row)
	}
	if n := ioamtest.AgreesWithTshark(t, file, rows); n != packets || len(rows) != 3*packets {
		t.Errorf("tshark reads %d packets, decode %d hops of %d packets", n, len(rows), packets)
	}
}
