package service

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/waymark-net/waymark/internal/config"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	_ "github.com/waymark-net/waymark/internal/inband/pdm/service" // which takes headroom, too
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/wire/ioam"
)

// A block becomes insertions: the one of the documentation, and one with all that there is.
func TestInsert(t *testing.T) {
	c, err := load(t, `ioam:
  node: {id: 3}
  interfaces: {to-athos: {id: 31, role: ingress}, to-aramis: {id: 32, role: egress}}
  namespaces:
  - {id: 123, data: 0xcafe, remove: true}
  - {id: 7, proof: {prime: 53, share: 28, poly2: 54, lpc: 21, secret: 10}}
  closed_domain: true
  insert: [{to: "2001:db8:4::/64", namespace: 123, size: 72, every: 1, mode: inline,
            trace: [hop_limit_node_id, interface_ids, timestamp_seconds, timestamp_fraction, transit_delay]},
    {name: tunnel, to: "::/0", proto: udp, ports: [53, "8000-8099"], interface: "to-ar*", every: 3/1000, mode: ip6ip6,
     tunnel_from: "2001:db8::1", tunnel_to: "2001:db8::2", namespace: 7, pot: true, dex: [hop_limit_node_id, flow_id, sequence],
     options: [{namespace: 123, e2e: [sequence_64, timestamp_seconds]}, {trace: [opaque_state_snapshot], size: 40, incremental: true}]}]
`)
	if err != nil {
		t.Fatal(err)
	}
	trace, _ := ioam.NewTrace(123, 0xF80000, 72)
	incremental, _ := ioam.NewIncrementalTrace(0, ioam.OpaqueStateSnapshot, 40)
	want := []inbandioam.Insertion{
		{
			Policy: policy.Policy{To: netip.MustParsePrefix("2001:db8:4::/64"), Interface: "*"},
			Take:   1, Of: 1, Options: []ioam.Body{trace},
		},
		{
			Name: "tunnel",
			Policy: policy.Policy{
				To: netip.MustParsePrefix("::/0"), Interface: "to-ar*", Protos: []uint8{17},
				Ports: []policy.Ports{{From: 53, To: 53}, {From: 8000, To: 8099}},
			},
			Take: 3, Of: 1000, Tunnel: &inbandioam.Tunnel{Source: netip.MustParseAddr("2001:db8::1"), Destination: netip.MustParseAddr("2001:db8::2"), Echo: true},
			Options: []ioam.Body{
				&ioam.POT{Namespace: 7},
				&ioam.DEX{Namespace: 7, Type: ioam.HopLimitNodeID, Extension: ioam.DEXFlowID | ioam.DEXSequence},
				&ioam.E2E{Namespace: 123, Type: ioam.E2ESequence64 | ioam.E2ESeconds}, incremental,
			},
		},
	}
	n := c.node()
	comparable := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	addrs := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, n.Insertions, comparable, addrs, cmpopts.IgnoreFields(policy.Policy{}, "For")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	proof := &inbandioam.Proof{Prime: 53, Share: 28, Poly2: 54, LPC: 21, HasShare: true, Secret: 10, Verifies: true}
	if diff := cmp.Diff(proof, n.Namespaces[1].Proof); diff != "" || !n.ClosedDomain || !n.Namespaces[0].Remove {
		t.Errorf("%+v (-want +got):\n%s", n, diff)
	}
	if n.Interfaces[0].Name != "to-athos" || n.Interfaces[1].Role != inbandioam.RoleEgress {
		t.Errorf("%+v", n.Interfaces)
	}
}

// What is dumped is read again as the same.
func TestInsertDump(t *testing.T) {
	text := "ioam:\n  interfaces: [{name: a}]\n  insert: [{to: \"::/0\", pot: false, e2e: [sequence_32], options: [{trace: [transit_delay], size: 8}]}]\n"
	c, err := config.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var dump bytes.Buffer
	if err := config.Dump(&dump, c, nil); err != nil {
		t.Fatal(err)
	}
	again, err := config.Parse(dump.String())
	if changes := config.Changes(c, again); err != nil || changes != nil {
		t.Errorf("%v, %v\n%s", err, changes, dump.String())
	}
}

// Every error of a block has its line and a remedy.
func TestBadInsert(t *testing.T) {
	defer func(before func(string) (int, bool)) { mtuOf = before }(mtuOf)
	mtuOf = func(name string) (int, bool) { return 1500, name == "out" }
	eleven := strings.TrimSuffix(strings.Repeat("{e2e: [sequence_32]}, ", 12), ", ")
	for _, c := range []struct{ insert, want string }{
		{`{trace: [transit_delay], size: 4}`, "[0].to: an insertion without a destination; write to: ::/0 for all"},
		{`{to: "::/0"}`, "[0]: nothing to insert; write trace, e2e, pot or dex"},
		{`{to: "::/0", every: 0, e2e: [sequence_32]}`, `[0].every: "0" is no share of packets; write n for one packet in n`},
		{`{to: "::/0", every: 1/1000001, e2e: [sequence_32]}`, `[0].every: "1/1000001" is no share of packets`},
		{`{to: "::/0", every: 3/2, e2e: [sequence_32]}`, `[0].every: "3/2" is no share of packets`},
		{`{to: "::/0", e2e: [sequence_32, sequence_64]}`, "[0].e2e: two sequence numbers; write sequence_64 or sequence_32"},
		{`{to: "::/0", namespace: 5, e2e: [sequence_32]}`, "[0].namespace: no namespace 5; list it under ioam.namespaces"},
		{`{to: "::/0", namespace: 65536, e2e: [sequence_32]}`, "[0].namespace: 65536 is out of range"},
		{`{to: "::/0", trace: [transit_delay]}`, "[0]: a trace without space; write size: 4 for each node on the path"},
		{`{to: "::/0", trace: [transit_delay], size: 6}`, "[0].size: 6 bytes; a multiple of 4, at most 244"},
		{`{to: "::/0", trace: [transit_delay], size: 248}`, "[0].size: 248 bytes; a multiple of 4, at most 244"},
		{`{to: "::/0", trace: [namespace_data_wide], size: 4}`, "[0].size: 4 bytes, and the data of one node take 8; write 8 for each node"},
		{`{to: "::/0", size: 8, e2e: [sequence_32]}`, "[0]: size of a trace without fields; write trace: with its fields"},
		{`{to: "::/0", dex: [transit_delay], every: 3/100}`, "[0].dex: direct export from 3 of 100 packets; at most 1 of 100 (RFC 9326)"},
		{`{to: "::/0", pot: true}`, "[0].pot: no share of the secret for namespace 0; write proof:"},
		{`{to: "::/0", options: [` + eleven + `]}`, "[0].options: 12 options; at most 11"},
		{`{to: "::/0", trace: [transit_delay], size: 240}`, "[0]: 256 bytes of options do not fit the MTU of out, 1500 bytes; 1280 must be left for packets: raise the MTU to 1536, or insert less"},
		{`{to: "::/0", options: [` + strings.TrimSuffix(strings.Repeat("{trace: [transit_delay], size: 244}, ", 5), ", ") + `]}`, "[0]: 1288 bytes of options; at most 1024 fit a packet of 1280 bytes"},
		{`{to: "::/0", interface: in, e2e: [sequence_32]}`, "[0].interface: without role egress for the namespaces of all options: in; write role: egress or both in ioam.interfaces"},
		{`{to: "::/0", interface: "i*", e2e: [sequence_32]}`, "[0].interface: without role egress for the namespaces of all options: i*"},
		{`{to: "::/0", interface: eth7, e2e: [sequence_32]}`, "[0].interface: no interface of the node is eth7; list it under ioam.interfaces"},
		{`{to: "::/0", mode: ip6ip6, e2e: [sequence_32]}`, "[0]: ip6ip6 without tunnel_to; write the address"},
		{`{to: "::/0", mode: ip6ip6, tunnel_to: "2001:db8::1", e2e: [sequence_32]}`, "[0]: ip6ip6 without tunnel_from; write an address of this node"},
		{`{to: "::/0", tunnel_to: "2001:db8::1", e2e: [sequence_32]}`, "[0]: addresses of a tunnel, and mode inline; write mode: ip6ip6"},
		{`{to: "::/0", every: 100, loopback: true, trace: [hop_limit_node_id, transit_delay], size: 8}`, "[0].loopback: loopback of another trace than a pre-allocated one of hop limit and node id; write trace: [hop_limit_node_id], without incremental (RFC 9322)"},
		{`{to: "::/0", every: 100, loopback: true, trace: [hop_limit_node_id], size: 8, incremental: true}`, "[0].loopback: loopback of another trace"},
		{`{to: "::/0", every: 100, loopback: true, e2e: [sequence_32]}`, "[0].loopback: loopback of another trace"},
		{`{to: "::/0", every: 100, options: [{loopback: true, trace: [namespace_data], size: 8}]}`, "[0].options[0].loopback: loopback of another trace"},
		{`{to: "::/0", every: 100, loopback: true, trace: [hop_limit_node_id], size: 8}`, "[0].loopback: loopback at a node without id, which could not recognize copies; write ioam.node.id"},
		{`{to: "::/0", tunnel_to: "192.0.2.1", e2e: [sequence_32]}`, `[0].tunnel_to: "192.0.2.1" is not an IPv6 address of a host`},
		{`{to: "::/0", e2e: [sequence_32]}, {to: "::/0", pot: true}`, "[1]: insertion ::/0 is given twice; the first is ioam.insert[0]"},
		{`{to: "::/0", proto: icmpv6, ports: [1], e2e: [sequence_32]}`, "[0]: protocol 58 has no ports"},
	} {
		_, err := load(t, fmt.Sprintf(`ioam:
  interfaces: [{name: in, role: ingress}, {name: out, role: both}]
  insert: [%s]
`, c.insert))
		if err == nil || !strings.Contains(err.Error(), "ioam.insert"+c.want) || !strings.Contains(err.Error(), "waymark.yaml:3:") {
			t.Errorf("%s:\n got %v\nwant %s", c.insert, err, c.want)
		}
	}
	const marks = "pdm: {policies: [{to: \"::/0\"}]}\n"
	if _, err := load(t, "pdm: {reserve: none, policies: [{to: \"::/0\"}]}\nioam: {interfaces: [{name: out}], insert: [{to: \"::/0\", trace: [transit_delay], size: 200}]}\n"); err != nil {
		t.Errorf("without headroom for marks: %v", err)
	}
	for yaml, want := range map[string]string{
		"ioam: {insert: [{to: \"::/0\", e2e: [sequence_32]}]}\n":                                                   "a node without interfaces",
		"ioam: {interfaces: [{name: a}], namespaces: [{id: 1, proof: {prime: 54, lpc: 1}}]}\n":                     ":1:69: ioam.namespaces[0].proof.prime: 54 is not an odd prime; write the prime of the domain",
		"ioam: {interfaces: [{name: a}], namespaces: [{id: 1, proof: {secret: 54}}]}\n":                            "ioam.namespaces[0].proof: proof of transit without a prime",
		"ioam: {interfaces: {a: {id: 1}, b: {id: 1, name: c}}}\n":                                                  "ioam.interfaces[1].name: given twice",
		marks + "ioam: {interfaces: [{name: out}], insert: [{to: \"::/0\", trace: [transit_delay], size: 200}]}\n": ":2:43: ioam.insert: 216 bytes of options and 16 of other stages do not fit the MTU of out, 1500 bytes; 1280 must be left for packets: raise the MTU to 1512, or insert less",

		"ioam: {interfaces: {a: {id: 1}, b: {id: 1}}}\n": ":1:33: ioam.interfaces[1]: interface id 1 is given twice; the first is ioam.interfaces[0]",
	} {
		if _, err := load(t, yaml); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", yaml, err, want)
		}
	}
}

// Loopback needs a share of packets that nodes answer, a node that recognizes copies, and interfaces by which they come back.
func TestLoopbackConfig(t *testing.T) {
	for _, c := range []struct{ loopback, every, iface, want string }{
		{"", "100", "both", ""},
		{"", "1/99", "both", ":5:87: ioam.insert[0].loopback: loopback from 1 of 99 packets; at most 1 of 100 (ioam.loopback.every); write every: 100, or more"},
		{"", "3/200", "both", "loopback from 3 of 200 packets"},
		{"{every: 0}", "99", "both", "at most 1 of 100"},
		{"{every: 1}", "1", "both", ""},
		{"{every: 1000}", "100", "both", "at most 1 of 1000 (ioam.loopback.every)"},
		{"{every: 1000001}", "100", "both", "ioam.loopback.every: 1000001 is out of range"},
		{"{rate: -1}", "100", "both", "ioam.loopback.rate"},
		{"", "100", "egress", "ioam.insert[0].interface: without role both for the namespace of loopback: *; write role: both in ioam.interfaces: copies come back there"},
	} {
		if c.loopback == "" {
			c.loopback = "{}"
		}
		cfg, err := load(t, fmt.Sprintf(`ioam:
  node: {id: 1}
  interfaces: [{name: out, role: %s}]
  loopback: %s
  insert: [{to: "::/0", every: %-6s trace: [hop_limit_node_id], size: 16, loopback: true}]
`, c.iface, c.loopback, c.every+","))
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if in := cfg.node().Insertions; len(in) != 1 || !in[0].Loops() {
			t.Errorf("%+v: %+v", c, in)
		}
	}
}

// The status says what became of packets that ask for copies, and why a node can send none.
func TestLoopbackInStatus(t *testing.T) {
	var out bytes.Buffer
	n := &Status{Loopback: LoopbackStatus{Looped: 5, Sent: 3, Unsent: 2, Limited: 7, Refused: 1, Returned: 9, Disabled: "not permitted"}}
	if err := n.write(&out); err != nil || !strings.Contains(out.String(), "IOAM loopback: 3 copies sent, 2 unsent (not permitted), 7 limited, 0 lost, 1 refused; 9 came back\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	n.Loopback = LoopbackStatus{Every: 100, Disabled: "not permitted"}
	if err := n.write(&out); err != nil || strings.Contains(out.String(), "loopback") {
		t.Errorf("%v\n%s", err, out.String())
	}
	p := &Path{Reached: 2, Hops: make([]Hop, 3)}
	for i, id := range []uint32{1, 2, 1} {
		p.Hops[i].NodeID = &id
	}
	if got := p.nodes(); got != "1 > 2 < 1" {
		t.Error(got)
	}
}

// All errors of an insertion are named at once, and those of others.
func TestAllErrorsOfInsertions(t *testing.T) {
	_, err := load(t, `ioam:
  interfaces: [{name: out}]
  insert:
  - {trace: [transit_delay], size: 6, e2e: [sequence_32, sequence_64], namespace: 5}
  - {to: "::/0", proto: icmpv6, ports: [1], dex: [transit_delay]}
  - {to: "::/0", mode: ip6ip6, tunnel_to: "2001:db8::1"}
`)
	for _, want := range []string{
		":4:5: ioam.insert[0].to: an insertion without a destination", ":4:36: ioam.insert[0].size: 6 bytes", ":4:44: ioam.insert[0].e2e: two sequence numbers",
		"ioam.insert[0].namespace: no namespace 5", ":5:5: ioam.insert[1]: protocol 58 has no ports", "ioam.insert[1].dex: direct export from 1 of 1 packets",
		":6:5: ioam.insert[2]: ip6ip6 without tunnel_from", "ioam.insert[2]: nothing to insert",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}

// The status of a node has who may send outer headers, and whether the end of a tunnel answers.
func TestTunnelsInStatus(t *testing.T) {
	no, yes := false, true
	n := &Status{TunnelsFrom: []string{"2001:db8:2::/64", "2001:db8:3::1/128"}, Insertions: []Insertion{
		{Name: "gone", Mode: "ip6ip6 to 2001:db8::1", Answers: &no},
		{Name: "there", Mode: "ip6ip6 to 2001:db8::2", Answers: &yes},
		{Name: "unknown", Mode: "ip6ip6 to 2001:db8::3", Answers: &no, Unasked: "operation not permitted"},
	}}
	var out bytes.Buffer
	if err := n.write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"from 2001:db8:2::/64, 2001:db8:3::1/128\n", "2001:db8::1, no answer ", "2001:db8::2 ", "2001:db8::3, cannot be asked "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}
