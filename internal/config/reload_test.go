package config

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func load(t *testing.T, yaml string) Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "waymark.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	c, _, err := Load(Sources{File: file})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestReload: what differs is named with both values, and only keys that can
// change at run time do.
func TestReload(t *testing.T) {
	running := load(t, "interfaces: [eth0]\nflow: {scan_interval: 1s, max_entries: 1000, ring_size: 1MiB}\n")
	next := load(t, `
interfaces: [eth0, "veth*"]
flow: {scan_interval: 2s, max_entries: 2000, ring_size: 1MiB}
export: [{jsonl: {path: a.jsonl}}]
`)
	want := []Change{
		{"interfaces", "[eth0]", "[eth0, veth*]", true},
		{"flow.max_entries", "1000", "2000", false},
		{"flow.scan_interval", "1s", "2s", true},
		{"export", "[]", `[{jsonl: {path: a.jsonl, filter: "", words: false, queue: 65536}}]`, true},
	}
	if diff := cmp.Diff(want, Changes(running, next)); diff != "" {
		t.Errorf("Changes (-want +got):\n%s", diff)
	}
	got := Reloaded(running, next)
	if got.Flow.ScanInterval != 2*time.Second || got.Flow.MaxEntries != 1000 || len(got.Interfaces) != 2 || len(got.Export) != 1 {
		t.Errorf("Reloaded = %+v", got)
	}
	var left []string
	for _, c := range Changes(got, next) {
		left = append(left, c.Key)
	}
	if diff := cmp.Diff([]string{"flow.max_entries"}, left); diff != "" {
		t.Errorf("after a reload (-want +got):\n%s", diff)
	}
	if c := Changes(running, running); c != nil {
		t.Errorf("a configuration differs from itself: %v", c)
	}
}

// TestReloadOfOneExporter: entries that stay are not part of the change.
func TestReloadOfOneExporter(t *testing.T) {
	running := load(t, "export: [{jsonl: {path: a}}, {jsonl: {path: b}}]\n")
	next := load(t, "export: [{jsonl: {path: a}}, {jsonl: {path: b, filter: 'port 53'}}]\n")
	want := []Change{{
		"export", `[{jsonl: {path: b, filter: "", words: false, queue: 65536}}]`, "[{jsonl: {path: b, filter: port 53, words: false, queue: 65536}}]", true,
	}}
	if diff := cmp.Diff(want, Changes(running, next)); diff != "" {
		t.Errorf("Changes (-want +got):\n%s", diff)
	}
}

// TestReloadOfEmptyLists: a list that was written as [] is one that was not written,
// in entries of lists, too, and what is in them still counts.
func TestReloadOfEmptyLists(t *testing.T) {
	short := Config{Export: []Export{{JSONL: &JSONL{Path: "a"}}}}
	long := Config{Export: []Export{{JSONL: &JSONL{Path: "a"}}}}
	for _, c := range []*Config{&short, &long} {
		gateSection.Edit(c).Rules = []gateRule{{GateWhere: GateWhere{"2001:db8::/32"}}}
	}
	lists := 0
	rule := &gateSection.Edit(&long).Rules[0]
	*rule = gateRule{GateWhere: rule.GateWhere}
	list := reflect.ValueOf(rule).Elem()
	for f, v := range list.Fields() {
		if v.Kind() == reflect.Slice {
			lists++
			list.FieldByIndex(f.Index).Set(reflect.MakeSlice(f.Type, 0, 0))
		}
	}
	if c := Changes(short, long); lists == 0 || c != nil {
		t.Errorf("%d empty lists make a difference: %v", lists, c)
	}
	rule.To, long.Export[0].JSONL.Path = "2001:db8::/33", "b"
	if c := Changes(short, long); len(c) != 2 {
		t.Errorf("changes %v", c)
	}
}
