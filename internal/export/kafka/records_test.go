package kafka_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/storetest"
)

// testRecords: what arrives is what was counted: JSON as the exporter jsonl has it, and protobuf as goflow2's own code reads it.
func (s *scene) testRecords(t *testing.T) {
	protobuf := s.config(t, "protobuf")
	protobuf.Format, protobuf.Compression = "protobuf", "lz4"
	one, two := newAgent(t, protobuf), newAgent(t, s.config(t, "json"))
	var lines []string
	one.store.OnEnd(func(ended store.Ended) {
		one.Append(ended)
		two.Append(ended)
		ended.Each(func(r *flow.Record) { lines = append(lines, string(jsonl.Append(nil, &origin, r))) })
	})
	for seed := range 20 {
		at := time.Unix(1_700_000_000+int64(seed), 0)
		iv := one.store.Begin(at)
		for _, r := range rapid.Custom(storetest.DrawRecords).Example(seed) {
			iv.Add(&r)
		}
		iv.End(at.Add(time.Second))
	}
	one.sent(t)
	two.sent(t)
	var values []string
	for _, r := range s.Read(t, "json") {
		values = append(values, string(r.Value))
	}
	if len(values) != len(lines) || len(lines) < 50 {
		t.Fatalf("%d lines, want %d", len(values), len(lines))
	}
	for i, line := range lines {
		if values[i] != line {
			t.Errorf("%s\nwant %s", values[i], line)
		}
	}
	var messages bytes.Buffer
	for _, r := range s.Read(t, "protobuf") {
		if n, size := binary.Uvarint(r.Value); int(n) != len(r.Value)-size || string(r.Key) != origin.Host {
			t.Errorf("a message of %d bytes with length %d and key %q", len(r.Value), n, r.Key)
		}
		messages.Write(r.Value)
	}
	decoded := goflow2(t, messages.Bytes())
	if len(decoded) != len(lines) {
		t.Fatalf("%d messages, want %d", len(decoded), len(lines))
	}
	for i, m := range decoded {
		compare(t, m, lines[i])
	}
}

// goflow2 decodes messages.
func goflow2(t *testing.T, messages []byte) (list []map[string]any) {
	t.Helper()
	cmd := exec.Command("go", "-C", "../../../test/oracles", "tool", "flowpb")
	cmd.Stdin = bytes.NewReader(messages)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("goflow2 (scripts/setup test): %v", err)
	}
	for line := range strings.Lines(string(out)) {
		list = append(list, decode(t, line))
	}
	return list
}

func decode(t *testing.T, line string) (m map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

// compare compares a message with a line; what has no value in JSON is 0 there, or no address.
func compare(t *testing.T, m map[string]any, line string) {
	t.Helper()
	want := decode(t, line)
	text := func(v any) string {
		switch v := v.(type) {
		case nil:
			return "0"
		case json.Number:
			return v.String()
		}
		return v.(string)
	}
	for _, name := range []string{"sport", "dport", "proto", "bytes", "packets", "tos", "tcp_flags", "vlan", "flow_label", "icmp_type", "icmp_code"} {
		if text(m[name]) != text(want[name]) {
			t.Errorf("%s: %v, want %v of %s", name, m[name], want[name], line)
		}
	}
	for _, name := range []string{"src", "dst"} {
		if address := want[name]; address == nil && m[name] != "" || address != nil && m[name] != address {
			t.Errorf("%s: %v, want %v", name, m[name], address)
		}
	}
	for _, name := range []string{"first", "last"} {
		at, err := time.Parse(time.RFC3339Nano, text(want[name]))
		if err != nil || at.UnixNano() > 0 && text(m[name]) != strconv.FormatInt(at.UnixNano(), 10) {
			t.Errorf("%s: %v, want %v: %v", name, m[name], want[name], err)
		}
	}
	etype := map[string]string{"4": "2048", "6": "34525"}[text(want["family"])]
	if text(m["etype"]) != etype && etype != "" || text(m["sampling"]) != "1" || text(m["received"]) < "1700000001" {
		t.Errorf("etype %v, sampling %v, received %v of %s", m["etype"], m["sampling"], m["received"], line)
	}
}
