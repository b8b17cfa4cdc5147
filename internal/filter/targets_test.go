package filter

import (
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
)

// TestEveryFieldHasAllTargets: a filter of each field compiles to records and SQL, and its values
// are parameters. Columns are those of flow.Fields: package disk tests them.
func TestEveryFieldHasAllTargets(t *testing.T) {
	for _, f := range Fields() {
		for example := range strings.SplitSeq(f.Example, ", ") {
			if strings.HasPrefix(example, "one of ") || strings.Contains(example, "www.") {
				example = f.Name + " 4"
			}
			parsed, err := Parse(example)
			if err != nil {
				if parsed, err = Parse(f.Name + " ingress"); err != nil {
					continue // names of few words: one of the others
				}
			}
			q := parsed.SQL(DuckDB)
			if len(q.Args) == 0 && strings.ContainsAny(q.Where, "'") || strings.Count(q.Where, "$") < len(q.Args) {
				t.Errorf("%s: %+v", example, q)
			}
			if Compile(parsed, Records())(&flow.Record{}) != parsed.Match(&flow.Record{}) {
				t.Errorf("%s: the tree matches otherwise", example)
			}
			for _, field := range parsed.Fields() {
				if field.Uint == nil && field.Str == nil && field.Addr == nil {
					t.Errorf("%s tests %s, which has no value to compare", example, field.Name)
				}
			}
		}
	}
}

// TestPlaces: what a filter tests decides whether it may tell sightings of a packet apart.
func TestPlaces(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "tcp and src net 10/8 or port 53": false, "icmp_type 8": false, "not udp": false,
		"iface eth0": true, "tcp and not direction in": true, "vlan 7 or tcp": true, "packets > 1": true,
	} {
		f, err := Parse(text)
		if err != nil || f.TestsPlaces() != want {
			t.Errorf("%q: %t, %v", text, !want, err)
		}
	}
}
