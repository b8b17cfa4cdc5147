package service

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"net/netip"
	"testing"
)

// TestMarksSchema: the CSV of marks has every name of their JSON, and no other.
func TestMarksSchema(t *testing.T) {
	m := Mark{
		Netns: "blue", Direction: "ingress", Proto: 17, Src: netip.MustParseAddr("2001:db8::1"), Missed: 1,
		Arrival: "first", Suspicious: "x", Server: 1500, Network: 2,
	}
	b, err := json.Marshal(&m)
	if err != nil {
		t.Fatal(err)
	}
	var names map[string]any
	if err := json.Unmarshal(b, &names); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := markPrinter(&text, "csv")(&m); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&text).ReadAll()
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d lines, %v", len(rows), err)
	}
	values := map[string]string{}
	for i, name := range rows[0] {
		values[name] = rows[1][i]
		if _, ok := names[name]; !ok {
			t.Errorf("%s is a name of CSV alone", name)
		}
	}
	if len(values) != len(names) || values["proto"] != "udp" || values["src"] != "2001:db8::1" || values["server_ns"] != "1500" {
		t.Errorf("%v, want the names %v", values, names)
	}
}
