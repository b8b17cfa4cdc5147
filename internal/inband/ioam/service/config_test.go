package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/config"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/wire/ioam"
)

func load(t *testing.T, yaml string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "waymark.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := config.Load(config.Sources{File: file})
	return Section.Of(&c), err
}

// A block becomes a node; what is left out is not available.
func TestNode(t *testing.T) {
	c, err := load(t, `ioam:
  node: {id: 3, wide_id: 0x00112233445566, time: ptp, receive_time: nic}
  interfaces:
  - to-athos:31:ingress
  - {name: to-aramis, wide_id: 32, role: both, roles: ["7:none"]}
  namespaces: [{id: 123, data: 0xcafe, schema: 9}, {id: 7, wide_data: 0xffff_0000_0000_0001, incremental: true}]
  schemas: [{id: 9, data: seven77}, {id: 10, data: "0x0102030405"}]
`)
	if err != nil {
		t.Fatal(err)
	}
	want := inbandioam.Node{
		ID: 3, WideID: 0x112233445566,
		Interfaces: []inbandioam.Interface{
			{Name: "to-athos", ID: 31, WideID: ioam.Unavailable32, Role: inbandioam.RoleIngress, Exceptions: map[uint16]inbandioam.Role{}},
			{
				Name: "to-aramis", ID: ioam.Unavailable16, WideID: 32, Role: inbandioam.RoleBoth,
				Exceptions: map[uint16]inbandioam.Role{7: inbandioam.RoleNone},
			},
		},
		Namespaces: []inbandioam.Namespace{
			{ID: 123, Data: 0xcafe, WideData: ioam.Unavailable64, Schema: &ioam.Snapshot{Schema: 9, Data: []byte("seven77\x00")}},
			{ID: 7, Data: ioam.Unavailable32, WideData: 0xffff000000000001, Incremental: true},
		},
		Direct: inbandioam.DirectExport{Every: 100, Rate: 100}, Loopback: inbandioam.Loopback{Every: 100, Rate: 100},
	}
	if diff := cmp.Diff(want, c.node()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !c.on() || c.Node.Time != "ptp" || c.Node.Receive != "nic" {
		t.Errorf("%+v", c)
	}
	if data, err := c.Schemas[1].bytes(); err != nil || string(data) != "\x01\x02\x03\x04\x05\x00\x00\x00" {
		t.Errorf("% x, %v", data, err)
	}
	var none Config
	if none.on() {
		t.Error("a node without interfaces is on")
	}
	if _, err := load(t, example); err != nil {
		t.Errorf("the example: %v", err)
	}
}

// A block that is wrong is refused as a whole, and every error names its line.
func TestBadNode(t *testing.T) {
	_, err := load(t, `ioam:
  node: {id: 16777216}
  interfaces: [{name: a, id: 65536}]
`)
	for _, want := range []string{":2:14: ioam.node.id: 16777216 is out of range", ":3:30: ioam.interfaces[0].id: 65536 is out of range"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	many := strings.Repeat("{id: 1}, ", inbandioam.MaxNamespaces+1)
	_, err = load(t, `ioam:
  node: {id: 3, wide_id: 0x100000000000000}
  interfaces:
  - {name: a, id: 1, wide_id: 5, roles: ["7:none", "7:both"]}
  - {name: b, id: 1, wide_id: 5}
  - {name: a}
  - {name: "eth*"}
  - {id: 4}
  - {name: c, wide_id: 0x100000000}
  namespaces:
  - {id: 123}
  - {id: 123, data: 0x1ffffffff}
  - {id: 5, schema: 8}
  schemas:
  - {id: 1, data: "0xz"}
  - {id: 1}
  - {id: 2, data: "`+strings.Repeat("x", 241)+`"}
`)
	for _, want := range []string{
		":2:26: ioam.node.wide_id: 0x100000000000000 is out of range; 56 bits, at most 0xffffffffffffff",
		":4:52: ioam.interfaces[0].roles[1]: role of interface a for namespace 7 is given twice; the first is ioam.interfaces[0].roles[0]",
		":5:5: ioam.interfaces[1]: interface id 1 is given twice; the first is ioam.interfaces[0]",
		":5:5: ioam.interfaces[1]: wide interface id 5 is given twice; the first is ioam.interfaces[0]",
		":6:5: ioam.interfaces[2]: interface a is given twice; the first is ioam.interfaces[0]",
		":7:12: ioam.interfaces[3].name: eth* is a glob; an interface has an id of its own: write its name",
		":8:5: ioam.interfaces[4]: an interface without a name; write name: as ip -br link prints it",
		":9:24: ioam.interfaces[5].wide_id: 0x100000000 is out of range; 32 bits, at most 0xffffffff",
		":12:5: ioam.namespaces[1]: namespace 123 is given twice; the first is ioam.namespaces[0]",
		":12:21: ioam.namespaces[1].data: 0x1ffffffff is out of range; 32 bits, at most 0xffffffff",
		":13:21: ioam.namespaces[2].schema: no schema 8; list it under ioam.schemas",
		":15:19: ioam.schemas[0].data: \"0xz\" is not hexadecimal; write pairs of digits after 0x, or text",
		":16:5: ioam.schemas[1]: schema 1 is given twice; the first is ioam.schemas[0]",
		":17:19: ioam.schemas[2].data: 244 bytes; at most 240 fit an option",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in:\n%v", want, err)
		}
	}
	for yaml, want := range map[string]string{
		"ioam: {namespaces: [" + many + "], interfaces: [{name: a}]}\n":                               ":1:20: ioam.namespaces: 32 entries; at most 31",
		"ioam: {namespaces: [{id: 1}]}\n":                                                             ":1:7: ioam: a node without interfaces; list them under ioam.interfaces",
		"ioam: {node: {wide_id: x}}\n":                                                                ":1:24: ioam.node.wide_id: \"x\" is not a number of up to 64 bits; write a decimal or hexadecimal number",
		"ioam: {interfaces: [{name: a}], tunnels_from: [" + strings.Repeat("fd00::/8, ", 17) + "]}\n": ":1:47: ioam.tunnels_from: 17 prefixes; at most 16: write shorter ones",
		"ioam: {interfaces: [{name: a}], tunnels_from: [10.0.0.0/8]}\n":                               ":1:48: ioam.tunnels_from[0]: \"10.0.0.0/8\" is an IPv4 prefix: only IPv6 packets carry such options",
		"probe: afpacket\nioam: {interfaces: [{name: a}]}\n":                                          "ioam: not available with the afpacket probe",
	} {
		if _, err := load(t, yaml); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", yaml, err, want)
		}
	}
}
