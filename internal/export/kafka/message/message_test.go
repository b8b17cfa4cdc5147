package message

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store/storetest"
	"github.com/waymark-net/waymark/test/python"
)

const judge = `
import sys, chdb
print(chdb.query("SELECT * EXCEPT (src_addr, dst_addr), hex(src_addr) AS src_addr, hex(dst_addr) AS dst_addr FROM file('%[1]s/messages', 'Protobuf')"
  " SETTINGS format_schema = '%[1]s/flow.proto:FlowMessage', output_format_json_quote_64bit_integers = 1", "JSONEachRow"), end="")
`

// TestSchema: ClickHouse reads the schema, and with it finds in messages what was in the records.
func TestSchema(t *testing.T) {
	if err := python.Command(t.Context(), "-c", "import chdb").Run(); err != nil {
		t.Skip("the Python package chdb-core is not installed: scripts/setup test")
	}
	var records []flow.Record
	for seed := range 30 {
		records = append(records, rapid.Custom(storetest.DrawRecords).Example(seed)...)
	}
	records = append(records, flow.Record{
		Family: 6, Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("2001:db8::2"), First: time.Unix(1, 2), Last: time.Unix(3, 4),
		Counters: flow.Counters{PayloadBytes: 3, Fragments: 2}, InnerVLAN: 7, Tunnel: flow.TunnelVXLAN, VNI: 1<<24 - 1, FlowLabel: 1<<20 - 1, InitiatorBy: 2,
	})
	received := time.Unix(1_700_000_000, 5)
	e := Encoder{Origin: flow.Origin{Host: "\xffathos", Sampling: 8}, Received: received}
	var messages []byte
	for i := range records {
		messages = e.Append(messages, &records[i])
	}
	dir := t.TempDir()
	for name, b := range map[string][]byte{"messages": messages, "flow.proto": []byte(Schema())} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := python.Command(t.Context(), "-c", fmt.Sprintf(judge, dir)).Output() // it also reports what it finds missing in a box
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(records) || len(records) < 50 {
		t.Fatalf("%d rows of %d records: %s", len(lines), len(records), lines[0])
	}
	found := map[string]bool{}
	for i, line := range lines {
		var row map[string]any
		numbers := json.NewDecoder(strings.NewReader(line))
		numbers.UseNumber()
		if err := numbers.Decode(&row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		r := &records[i]
		for i := range flow.Fields {
			f := &flow.Fields[i]
			got, want := text(row[f.Protobuf().Name]), expected(f, &e.Origin, r)
			if got != want {
				t.Errorf("%s: %q, want %q", f.Name, got, want)
			}
			found[f.Name] = found[f.Name] || want != "0" && want != ""
		}
		if text(row["time_received_ns"]) != fmt.Sprint(received.UnixNano()) {
			t.Errorf("received: %v", row["time_received_ns"])
		}
	}
	for i := range flow.Fields {
		if name := flow.Fields[i].Name; !found[name] {
			t.Errorf("no record has %s", name)
		}
	}
}

// text is a value of a row: numbers are their digits, what is missing is 0, lists are their numbers with commas.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return "0"
	case bool:
		return map[bool]string{false: "0", true: "1"}[v]
	case []any:
		list := make([]string, len(v))
		for i := range v {
			list[i] = text(v[i])
		}
		return strings.Join(list, ",")
	}
	return fmt.Sprint(v)
}

// expected is the same of a record.
func expected(f *flow.Field, o *flow.Origin, r *flow.Record) string {
	absent := f.Absent != nil && f.Absent(o, r)
	switch {
	case f.Name == "sampling":
		return fmt.Sprint(o.Sampling)
	case f.Kind == flow.Address:
		if a := f.Addr(r); a.IsValid() && !absent {
			return fmt.Sprintf("%X", a.AsSlice())
		}
		return ""
	case f.Kind == flow.Time:
		return fmt.Sprint(f.Nanos(r))
	case f.Kind == flow.Pairs:
		var list []string
		if !absent {
			for _, b := range f.Buckets(r) {
				list = append(list, fmt.Sprint(b.Index), fmt.Sprint(b.Count))
			}
		}
		return strings.Join(list, ",")
	case f.Kind.Quoted():
		if absent {
			return ""
		}
		return strings.ToValidUTF8(string(f.Append(nil, o, r)), "\uFFFD")
	case absent:
		return "0"
	case f.Kind == flow.Signed:
		return fmt.Sprint(int64(f.Uint(r)))
	}
	return fmt.Sprint(f.Uint(r))
}

// TestMissing: 0 is written where a value may be missing, and only there.
func TestMissing(t *testing.T) {
	r := flow.Record{Family: 4, Proto: 6, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Counters: flow.Counters{Packets: 1}}
	var e Encoder
	m := e.Append(nil, &r)
	_, size := binary.Uvarint(m)
	numbers := map[protowire.Number]bool{}
	for m = m[size:]; len(m) > 0; {
		number, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			t.Fatalf("%x", m)
		}
		m = m[n:]
		m = m[protowire.ConsumeFieldValue(number, kind, m):]
		numbers[number] = true
	}
	for name, want := range map[string]bool{"sport": true, "packets": true, "sampling": true, "bytes": false, "vlan": false, "pdm.sent": false} {
		if got := numbers[protowire.Number(flow.FieldNamed(name).Protobuf().Number)]; got != want {
			t.Errorf("%s is written: %t", name, got)
		}
	}
}

// BenchmarkAppend is the cost of a record.
func BenchmarkAppend(b *testing.B) {
	r := flow.Record{
		Iface: "eth0", IfIndex: 2, Family: 4, Proto: 6, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), SrcPort: 40000, DstPort: 443,
		TTLMin: 60, TTLMax: 64, TCPFlags: 0x1b, Counters: flow.Counters{Packets: 90, Bytes: 90000, WireBytes: 91000}, First: time.Unix(1_700_000_000, 0), Last: time.Unix(1_700_000_001, 0),
	}
	e := Encoder{Origin: flow.Origin{Host: "athos", Sampling: 1}, Received: time.Unix(1_700_000_002, 0)}
	var m []byte
	for b.Loop() {
		m = e.Append(m[:0], &r)
	}
	b.ReportMetric(float64(len(m)), "B/record")
}
