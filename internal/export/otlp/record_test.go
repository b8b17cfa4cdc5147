package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/flow/flowtest"
	"github.com/waymark-net/waymark/test/soak"
)

var origin = flow.Origin{Host: "gw", Sampling: 10}

// collector keeps what it takes. answer, if any, is what it says instead.
type collector struct {
	*httptest.Server
	requests []request
	answer   func(http.ResponseWriter)
}

type request struct {
	path   string
	header http.Header
	body   []byte
}

func newCollector(t testing.TB) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.requests = append(c.requests, request{r.URL.Path, r.Header, body})
	if c.answer != nil {
		c.answer(w)
	}
}

func newExporter(t testing.TB, cfg Config) *Exporter {
	t.Helper()
	cfg.Resource = Resource{Host: origin.Host, Version: "1.2.3"}
	e, err := New(cfg, origin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// decoded is what OpenTelemetry's own types read of a request, as the JSON lines of the same records.
func decoded(t fataler, body []byte) (lines []map[string]any, first *logspb.LogRecord) {
	var data logspb.LogsData // of the same form as ExportLogsServiceRequest
	if err := proto.Unmarshal(body, &data); err != nil {
		t.Fatalf("request: %v", err)
	}
	for _, r := range data.ResourceLogs {
		host := ""
		for _, a := range r.Resource.Attributes {
			if a.Key == "host.name" {
				host = a.Value.GetStringValue()
			}
		}
		for _, s := range r.ScopeLogs {
			for _, record := range s.LogRecords {
				if record.EventName != EventName {
					t.Fatalf("event %q", record.EventName)
				}
				line := map[string]any{"host": host}
				for _, a := range record.Attributes {
					place(t, line, strings.Split(strings.TrimPrefix(a.Key, Prefix), "."), plain(t, a.Value))
				}
				lines = append(lines, line)
				if first == nil {
					first = record
				}
			}
		}
	}
	return lines, first
}

type fataler interface{ Fatalf(string, ...any) }

// place puts a value where its path says, each once.
func place(t fataler, in map[string]any, path []string, v any) {
	if len(path) > 1 {
		inner, ok := in[path[0]].(map[string]any)
		if !ok {
			inner = map[string]any{}
			in[path[0]] = inner
		}
		place(t, inner, path[1:], v)
		return
	}
	if _, twice := in[path[0]]; twice {
		t.Fatalf("%s is there twice", path[0])
	}
	in[path[0]] = v
}

// plain is a value as a JSON decoder has it, with numbers as their text.
func plain(t fataler, v *commonpb.AnyValue) any {
	switch v := v.Value.(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return json.Number(fmt.Sprint(v.IntValue))
	case *commonpb.AnyValue_BoolValue:
		return v.BoolValue
	case *commonpb.AnyValue_ArrayValue:
		list := []any{}
		for _, e := range v.ArrayValue.Values {
			list = append(list, plain(t, e))
		}
		return list
	}
	t.Fatalf("a value of type %T", v.Value)
	return nil
}

// line is the JSON line of a record, in which a number that OTLP has no type for is a string.
func line(t fataler, r *flow.Record) map[string]any {
	d := json.NewDecoder(bytes.NewReader(jsonl.Append(nil, &origin, r)))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatalf("JSON: %v", err)
	}
	return widen(m).(map[string]any)
}

func widen(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = widen(v[k])
		}
	case []any:
		for i := range v {
			v[i] = widen(v[i])
		}
	case json.Number:
		var n uint64
		if _, err := fmt.Sscan(v.String(), &n); err == nil && n > math.MaxInt64 {
			return v.String()
		}
	}
	return v
}

// TestRecordsAreJSONLines: OpenTelemetry's own decoder reads of any records what their JSON lines say.
func TestRecordsAreJSONLines(t *testing.T) {
	c := newCollector(t)
	cfg := Default()
	cfg.Endpoint, cfg.Gzip = c.URL, false
	e := newExporter(t, cfg)
	for range soak.Times(3, 1000) { // each of 100 times, of 10 records
		rapid.Check(t, func(t *rapid.T) {
			records := rapid.SliceOfN(rapid.Custom(flowtest.Record), 1, 10).Draw(t, "records")
			c.requests = nil
			if n, err := e.Export(context.Background(), records); n != len(records) || err != nil {
				t.Fatalf("exported %d of %d: %v", n, len(records), err)
			}
			lines, _ := decoded(t, c.requests[0].body)
			if len(lines) != len(records) {
				t.Fatalf("%d log records of %d", len(lines), len(records))
			}
			for i := range records {
				if d := cmp.Diff(line(t, &records[i]), lines[i]); d != "" {
					t.Fatalf("record %d: - JSON, + OTLP: %s", i, d)
				}
			}
		})
	}
}

// TestLogRecord: what is in no attribute.
func TestLogRecord(t *testing.T) {
	c := newCollector(t)
	cfg := Default()
	cfg.Endpoint, cfg.Gzip, cfg.Words = c.URL+"/otlp/", false, true
	e := newExporter(t, cfg)
	began := time.Now()
	if _, err := e.Export(t.Context(), []flow.Record{tcp(1)}); err != nil {
		t.Fatal(err)
	}
	q := c.requests[0]
	if q.path != "/otlp/v1/logs" || q.header.Get("Content-Type") != "application/x-protobuf" || q.header.Get("User-Agent") != "waymark/1.2.3" {
		t.Errorf("POST %s: %v", q.path, q.header)
	}
	lines, r := decoded(t, q.body)
	if lines[0]["proto"] != "tcp" {
		t.Errorf("proto: %v", lines[0]["proto"])
	}
	observed := time.Unix(0, int64(r.ObservedTimeUnixNano))
	if r.TimeUnixNano != uint64(tcp(1).Last.UnixNano()) || observed.Before(began.Add(-time.Second)) || time.Since(observed) < 0 || r.SeverityNumber != logspb.SeverityNumber_SEVERITY_NUMBER_INFO {
		t.Errorf("log record: %+v", r)
	}
}

func tcp(packets uint64) flow.Record {
	return flow.Record{
		Iface: "eth0", Direction: flow.Egress, Family: 4, Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("198.51.100.2"),
		Proto: 6, SrcPort: 40000, DstPort: 443, TOS: 0x28, TCPFlags: 0x11b,
		Counters: flow.Counters{Packets: packets, Bytes: 4200, PayloadBytes: 3576, WireBytes: 4368},
		TTLMin:   63, TTLMax: 64, First: time.Unix(1700000000, 5), Last: time.Unix(1700000059, 987654321),
		EndReason: flow.EndReasonEndOfFlow, RTT: flow.RTT{Responder: 31_000_000, Initiator: 120_000},
	}
}

func numbered(n int) (records []flow.Record) {
	for i := range n {
		records = append(records, tcp(uint64(i)))
	}
	return records
}

func BenchmarkAppend(b *testing.B) {
	e := encoder{origin: origin}
	r := tcp(1)
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf = e.append(buf[:0], &r, r.Last)
	}
}
