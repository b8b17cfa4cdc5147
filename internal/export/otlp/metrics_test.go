package otlp

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/waymark-net/waymark/test/await"
)

// registry has a metric of each type.
func registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	packets := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "test_packets_total", Help: "Packets."}, []string{"iface", "direction"})
	packets.WithLabelValues("eth0", "ingress").Add(7)
	packets.WithLabelValues("eth\u00e9", "egress").Add(1 << 60)
	flows := prometheus.NewGauge(prometheus.GaugeOpts{Name: "test_flows", Help: "Flows."})
	flows.Set(-1.5)
	sizes := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "test_size_bytes", Help: "Sizes.", Buckets: []float64{64, 1500}})
	for _, v := range []float64{60, 64, 100, 9000, 9001} {
		sizes.Observe(v)
	}
	delay := prometheus.NewSummary(prometheus.SummaryOpts{Name: "test_delay_seconds", Help: "Delays.", Objectives: map[float64]float64{0.5: 0.01}})
	delay.Observe(2)
	r.MustRegister(packets, flows, sizes, delay)
	return r
}

// described is a metric as text: of each data point its attributes and values.
func described(m *metricspb.Metric) (list []string) {
	labels := func(attributes []*commonpb.KeyValue) string {
		var all []string
		for _, a := range attributes {
			all = append(all, a.Key+"="+a.Value.GetStringValue())
		}
		return "{" + strings.Join(all, ",") + "} "
	}
	add := func(kind string, attributes []*commonpb.KeyValue, values ...any) {
		list = append(list, fmt.Sprint(m.Name, " ", m.Description, " ", kind, labels(attributes), fmt.Sprint(values...)))
	}
	switch d := m.Data.(type) {
	case *metricspb.Metric_Gauge:
		for _, p := range d.Gauge.DataPoints {
			add("gauge", p.Attributes, p.GetAsDouble())
		}
	case *metricspb.Metric_Sum:
		for _, p := range d.Sum.DataPoints {
			add(fmt.Sprint(d.Sum.AggregationTemporality, d.Sum.IsMonotonic), p.Attributes, p.GetAsDouble())
		}
	case *metricspb.Metric_Histogram:
		for _, p := range d.Histogram.DataPoints {
			add(d.Histogram.AggregationTemporality.String(), p.Attributes, p.Count, p.GetSum(), p.BucketCounts, p.ExplicitBounds)
		}
	case *metricspb.Metric_Summary:
		for _, p := range d.Summary.DataPoints {
			for _, q := range p.QuantileValues {
				add("summary", p.Attributes, p.Count, p.Sum, q.Quantile, q.Value)
			}
		}
	}
	return list
}

func newMetrics(t *testing.T, url string, interval time.Duration, gather prometheus.Gatherer) *Metrics {
	t.Helper()
	cfg := Default()
	cfg.Endpoint, cfg.Gzip = url, false
	cfg.Resource = Resource{Host: "gw", Version: "1.2.3"}
	m, err := NewMetrics(cfg, interval, gather, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMetrics: OpenTelemetry's own decoder reads what was gathered.
func TestMetrics(t *testing.T) {
	c := newCollector(t)
	m := newMetrics(t, c.URL, time.Hour, registry())
	now := time.Now()
	if err := m.send(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if c.requests[0].path != "/v1/metrics" {
		t.Errorf("POST %s", c.requests[0].path)
	}
	var data metricspb.MetricsData
	if err := proto.Unmarshal(c.requests[0].body, &data); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, metric := range data.ResourceMetrics[0].ScopeMetrics[0].Metrics {
		got = append(got, described(metric)...)
		if s := metric.GetSum(); s != nil && (s.DataPoints[0].StartTimeUnixNano != uint64(m.started.UnixNano()) || s.DataPoints[0].TimeUnixNano != uint64(now.UnixNano())) {
			t.Errorf("times of %+v", s)
		}
	}
	slices.Sort(got)
	want := []string{
		"test_delay_seconds Delays. summary{} 1 2 0.5 2",
		"test_flows Flows. gauge{} -1.5",
		"test_packets_total Packets. AGGREGATION_TEMPORALITY_CUMULATIVE true{direction=egress,iface=eth\u00e9} " + fmt.Sprint(math.Pow(2, 60)),
		"test_packets_total Packets. AGGREGATION_TEMPORALITY_CUMULATIVE true{direction=ingress,iface=eth0} 7",
		"test_size_bytes Sizes. AGGREGATION_TEMPORALITY_CUMULATIVE{} 5 18225 [2 1 2] [64 1500]",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("- want, + got: %s", d)
	}
	resource := map[string]string{}
	for _, a := range data.ResourceMetrics[0].Resource.Attributes {
		resource[a.Key] = a.Value.GetStringValue()
	}
	if d := cmp.Diff(map[string]string{"service.name": "waymark", "service.version": "1.2.3", "host.name": "gw"}, resource); d != "" {
		t.Error(d)
	}
}

// TestMetricsRun: metrics go on after a collector was busy, and are sent once more at the end.
func TestMetricsRun(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if requests.Add(1) == 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	m := newMetrics(t, server.URL, 5*time.Millisecond, registry())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	await.True(t, "metrics after a refusal", func() bool { return requests.Load() > 3 })
	cancel()
	if err := await.Signal(t, "the end", ended); err != nil {
		t.Error(err)
	}

	requests.Store(2)
	m = newMetrics(t, server.URL, time.Hour, registry())
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := m.Run(ctx); err != nil || requests.Load() != 3 {
		t.Errorf("at the end: %d requests, %v", requests.Load()-2, err)
	}
}
