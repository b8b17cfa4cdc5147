package prometheus

import (
	"slices"
	"strings"
	"time"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
)

// collector turns the status of a moment into samples.
type collector struct {
	status func() obs.Status
	page   Page
	descs  []*client.Desc // by index of page.Metrics
	delays []*client.Desc // by index of page.Histograms
}

func newCollector(status func() obs.Status, stages Page) *collector {
	c := &collector{status: status, page: whole(stages)}
	for _, m := range c.page.Metrics {
		c.descs = append(c.descs, client.NewDesc(m.Name, m.Help, m.Labels, nil))
	}
	for _, h := range c.page.Histograms {
		c.delays = append(c.delays, client.NewDesc(h.Name, h.Help, h.Labels, nil))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *client.Desc) {
	for _, d := range slices.Concat(c.descs, c.delays) {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- client.Metric) {
	status := c.status()
	for i, m := range c.page.Metrics {
		kind := client.GaugeValue
		if m.Type == Counter {
			kind = client.CounterValue
		}
		for _, s := range samples(m, &status) {
			out <- client.MustNewConstMetric(c.descs[i], kind, s.value, s.labels...)
		}
	}
	for i, h := range c.page.Histograms {
		for _, s := range delaySums(h, &status) {
			out <- client.MustNewConstHistogram(c.delays[i], s.delays.Count, time.Duration(s.delays.Sum).Seconds(), classic(&s.delays), s.labels...)
		}
	}
}

type delaySum struct {
	delays flow.Delays
	labels []string
}

// delaySums are the delays of one histogram, likewise one for each set of labels.
func delaySums(h Histogram, status *obs.Status) map[string]*delaySum {
	all := map[string]*delaySum{}
	h.Collect(status, func(d *flow.Delays, labels ...string) {
		key, labels := labelKey(labels)
		if all[key] == nil {
			all[key] = &delaySum{labels: labels}
		}
		all[key].delays.Merge(d)
	})
	return all
}

// labelKey distinguishes sets of labels, and makes their values UTF-8: interface
// names are any bytes.
func labelKey(labels []string) (string, []string) {
	for i := range labels {
		labels[i] = strings.ToValidUTF8(labels[i], "\ufffd")
	}
	return strings.Join(labels, "\x00"), labels
}

type sample struct {
	value  float64
	labels []string
}

// samples are those of a metric, one for each set of labels: a page with one
// twice would be refused as a whole, and an interface that was deleted and made
// again, or two programs of one name, can be there twice.
func samples(m Metric, status *obs.Status) map[string]*sample {
	all := map[string]*sample{}
	m.Collect(status, func(value float64, labels ...string) {
		key, labels := labelKey(labels)
		known, ok := all[key]
		switch {
		case !ok:
			all[key] = &sample{value, labels}
		case m.Type == Counter:
			known.value += value
		default:
			known.value = value
		}
	})
	return all
}
