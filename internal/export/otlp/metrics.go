package otlp

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protowire"
)

// Metrics sends the agent's metrics at an interval, under the names that they have for Prometheus.
type Metrics struct {
	client   *client
	envelope envelope
	gather   prometheus.Gatherer
	interval time.Duration
	started  time.Time // of all counters
	log      *slog.Logger
}

// NewMetrics makes an exporter of what is gathered.
func NewMetrics(cfg Config, interval time.Duration, gather prometheus.Gatherer, log *slog.Logger) (*Metrics, error) {
	c, err := newClient(cfg, "v1/metrics")
	if err != nil {
		return nil, err
	}
	return &Metrics{
		client: c, envelope: newEnvelope(cfg.Resource), gather: gather, interval: interval, started: time.Now(),
		log: log.With("exporter", "otlp", "target", c.url),
	}, nil
}

// Listen does nothing: requests are sent.
func (m *Metrics) Listen() error { return nil }

// Close does nothing: Run ends the connection.
func (m *Metrics) Close() {}

// lastTimeout is for the last values, when the agent ends.
const lastTimeout = time.Second

// Run sends metrics until ctx is done, and then once more. What a collector does not take is not kept: the next values include it.
func (m *Metrics) Run(ctx context.Context) error {
	defer m.client.close()
	failing, next := false, m.interval
	for {
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
			defer cancel()
			if err := m.send(last, time.Now()); err != nil {
				m.log.Warn("the last metrics were not sent", "error", err)
			}
			return nil
		}
		next = m.interval
		err := m.send(ctx, time.Now())
		if refused := (*refusal)(nil); errors.As(err, &refused) {
			next = max(next, refused.after)
		}
		switch {
		case err != nil && !failing && ctx.Err() == nil:
			m.log.Warn("metrics cannot be sent", "error", err)
		case err == nil && failing:
			m.log.Info("metrics are sent again")
		}
		failing = err != nil
	}
}

func (m *Metrics) send(ctx context.Context, now time.Time) error {
	families, gatherErr := m.gather.Gather() // what could be gathered is sent in any case
	e := metricsEncoder{started: uint64(m.started.UnixNano()), now: uint64(now.UnixNano())}
	for _, f := range families {
		e.family(f)
	}
	_, err := m.client.post(ctx, m.envelope.appendHead(nil, len(e.metrics)), e.metrics)
	return errors.Join(gatherErr, err)
}

// Fields of opentelemetry/proto/metrics/v1.
const (
	metricName        protowire.Number = 1
	metricDescription protowire.Number = 2
	metricGauge       protowire.Number = 5
	metricSum         protowire.Number = 7
	metricHistogram   protowire.Number = 9
	metricSummary     protowire.Number = 11

	dataPoints      protowire.Number = 1
	dataTemporality protowire.Number = 2
	dataMonotonic   protowire.Number = 3

	pointStart protowire.Number = 2
	pointTime  protowire.Number = 3

	numberDouble     protowire.Number = 4
	numberAttributes protowire.Number = 7

	// Of HistogramDataPoint and SummaryDataPoint.
	countedCount protowire.Number = 4
	countedSum   protowire.Number = 5

	histogramCounts     protowire.Number = 6
	histogramBounds     protowire.Number = 7
	histogramAttributes protowire.Number = 9

	summaryQuantiles  protowire.Number = 6
	summaryAttributes protowire.Number = 7
)

const cumulative = 2 // AggregationTemporality

// metricsEncoder encodes metrics, each as a field of ScopeMetrics.
type metricsEncoder struct {
	started, now uint64 // Unix ns
	metrics      []byte
}

func (e *metricsEncoder) family(f *dto.MetricFamily) {
	var kind protowire.Number
	var points []byte
	for _, m := range f.GetMetric() {
		var p []byte
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			kind, p = metricSum, e.number(m, m.GetCounter().GetValue())
		case dto.MetricType_HISTOGRAM:
			kind, p = metricHistogram, e.histogram(m, m.GetHistogram())
		case dto.MetricType_SUMMARY:
			kind, p = metricSummary, e.summary(m, m.GetSummary())
		case dto.MetricType_GAUGE:
			kind, p = metricGauge, e.number(m, m.GetGauge().GetValue())
		default:
			kind, p = metricGauge, e.number(m, m.GetUntyped().GetValue())
		}
		points = appendBytes(points, dataPoints, p)
	}
	if kind == metricSum || kind == metricHistogram {
		points = appendNumber(points, dataTemporality, cumulative)
	}
	if kind == metricSum {
		points = appendNumber(points, dataMonotonic, 1)
	}
	metric := appendBytes(nil, metricName, f.GetName())
	metric = appendBytes(metric, metricDescription, f.GetHelp())
	e.metrics = appendBytes(e.metrics, scopeRecords, appendBytes(metric, kind, points))
}

// point begins a data point.
func (e *metricsEncoder) point(m *dto.Metric, attributes protowire.Number) (p []byte) {
	for _, l := range m.GetLabel() {
		p = appendAttribute(p, attributes, newKey(l.GetName()), appendString(nil, l.GetValue()))
	}
	p = appendFixed64(p, pointStart, e.started)
	return appendFixed64(p, pointTime, e.now)
}

func (e *metricsEncoder) number(m *dto.Metric, v float64) []byte {
	return appendDouble(e.point(m, numberAttributes), numberDouble, v)
}

// histogram: counts of OTLP are of one bucket each, the last has no bound; those of Prometheus include all buckets below.
func (e *metricsEncoder) histogram(m *dto.Metric, h *dto.Histogram) []byte {
	p := e.point(m, histogramAttributes)
	p = appendFixed64(p, countedCount, h.GetSampleCount())
	p = appendDouble(p, countedSum, h.GetSampleSum())
	var counts, bounds []byte
	below := uint64(0)
	for _, b := range h.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			continue
		}
		counts = protowire.AppendFixed64(counts, b.GetCumulativeCount()-below)
		bounds = protowire.AppendFixed64(bounds, math.Float64bits(b.GetUpperBound()))
		below = b.GetCumulativeCount()
	}
	counts = protowire.AppendFixed64(counts, h.GetSampleCount()-below)
	p = appendBytes(p, histogramCounts, counts)
	return appendBytes(p, histogramBounds, bounds)
}

func (e *metricsEncoder) summary(m *dto.Metric, s *dto.Summary) []byte {
	p := e.point(m, summaryAttributes)
	p = appendFixed64(p, countedCount, s.GetSampleCount())
	p = appendDouble(p, countedSum, s.GetSampleSum())
	for _, q := range s.GetQuantile() {
		v := appendDouble(nil, 1, q.GetQuantile())
		p = appendBytes(p, summaryQuantiles, appendDouble(v, 2, q.GetValue()))
	}
	return p
}

func appendDouble(b []byte, field protowire.Number, v float64) []byte {
	return appendFixed64(b, field, math.Float64bits(v))
}
