package filter

import (
	"maps"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
)

// shorthand is a test without a value.
type shorthand struct {
	node  node
	leads bool // may stand in front of a field: tcp port 443
}

// shorthands by name: protocols, IP versions, directions and TCP flags.
var shorthands = func() map[string]shorthand {
	m := map[string]shorthand{}
	add := func(name string, leads bool, field, op string, texts ...string) {
		t := test{field: fieldNamed(field), op: op}
		for _, text := range texts {
			v, err := t.field.parse(text)
			if err != nil {
				panic("filter: shorthand " + name + ": " + err.Error())
			}
			t.values = append(t.values, v)
		}
		m[name] = shorthand{t, leads}
	}
	for _, name := range flow.ProtoNames() {
		add(name, true, "proto", "=", name)
	}
	add("icmp6", true, "proto", "=", "icmpv6")
	for name, version := range map[string]string{"ip": "4", "ipv4": "4", "ip4": "4", "ip6": "6", "ipv6": "6"} {
		add(name, true, "family", "=", version)
	}
	for _, name := range []string{"ingress", "inbound", "egress", "outbound"} {
		add(name, false, "direction", "=", name)
	}
	add("vlan", false, "vlan", "!=", "0")
	add("multicast", false, "dst", "=", "224.0.0.0/4", "ff00::/8")
	flags := fieldNamed("tcp_flags")
	for _, bit := range flags.names {
		add("tcp.flags."+bit, false, "tcp_flags", "=", bit)
	}
	m["tcp.flags.reset"], m["tcp.flags.push"] = m["tcp.flags.rst"], m["tcp.flags.psh"]
	return m
}()

// phrases are the names of fields, in lower case with one blank between words.
// Two fields: both must fit.
var phrases = func() map[string][]*field {
	m := map[string][]*field{}
	for i := range fields {
		for _, name := range append([]string{fields[i].name}, fields[i].aliases...) {
			m[name] = []*field{&fields[i]}
		}
	}
	for _, kind := range []string{"", " host", " net", " port", " portrange"} {
		m["src and dst"+kind] = []*field{m["src"+kind][0], m["dst"+kind][0]}
	}
	return m
}()

// maxWords is how many words the longest phrase has.
const maxWords = 4

// firstWords begin phrases.
var firstWords = func() map[string]bool {
	m := map[string]bool{}
	for name := range phrases {
		first, _, _ := strings.Cut(name, " ")
		m[first] = true
	}
	return m
}()

// Shorthands are the words that are tests by themselves.
func Shorthands() []string { return slices.Sorted(maps.Keys(shorthands)) }
