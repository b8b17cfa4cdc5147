package e2e

import (
	"compress/gzip"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/waymark-net/waymark/internal/lab"
)

// otlpCollector reads OTLP over HTTP with OpenTelemetry's own types.
type otlpCollector struct {
	mu      sync.Mutex
	records []map[string]any // attributes of log records: text and numbers
	metrics map[string]bool
	failed  error
}

func newOTLPCollector(t *testing.T, h *lab.Host, address string) *otlpCollector {
	t.Helper()
	c := &otlpCollector{metrics: map[string]bool{}}
	var l net.Listener
	if err := h.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(c.take), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return c
}

func (c *otlpCollector) take(w http.ResponseWriter, r *http.Request) {
	z, err := gzip.NewReader(r.Body)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(z)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var logs logspb.LogsData
	var metrics metricspb.MetricsData
	switch {
	case err != nil:
	case r.URL.Path == "/v1/logs":
		err = proto.Unmarshal(body, &logs)
	default:
		err = proto.Unmarshal(body, &metrics)
	}
	if err != nil {
		c.failed = err
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	for _, resource := range logs.ResourceLogs {
		for _, scope := range resource.ScopeLogs {
			for _, l := range scope.LogRecords {
				record := map[string]any{}
				for _, a := range l.Attributes {
					record[a.Key] = a.Value.GetStringValue()
					if n := a.Value.GetIntValue(); n != 0 {
						record[a.Key] = uint64(n)
					}
				}
				c.records = append(c.records, record)
			}
		}
	}
	for _, resource := range metrics.ResourceMetrics {
		for _, scope := range resource.ScopeMetrics {
			for _, m := range scope.Metrics {
				c.metrics[m.Name] = true
			}
		}
	}
}

// same expects the sums of the records, and metrics of interfaces.
func (c *otlpCollector) same(t *testing.T, records []record) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		t.Errorf("OTLP: %v", c.failed)
	}
	for _, direction := range []string{"ingress", "egress"} {
		want, got := sum(records, func(r *record) bool { return r.Direction == direction }), amount{}
		for _, r := range c.records {
			if r["flow.direction"] != direction {
				continue
			}
			number := func(key string) uint64 { n, _ := r[key].(uint64); return n }
			got.Packets += number("flow.packets")
			got.Bytes += number("flow.bytes")
			got.WireBytes += number("flow.wire_bytes")
		}
		if got != want {
			t.Errorf("OTLP, %s: %+v, JSON lines %+v", direction, got, want)
		}
	}
	if len(c.records) != len(records) {
		t.Errorf("%d log records, %d JSON lines", len(c.records), len(records))
	}
	if !c.metrics["waymark_packets_total"] || !c.metrics["waymark_coverage_ratio"] {
		t.Errorf("metrics: %v", c.metrics)
	}
}
