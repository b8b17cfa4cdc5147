package prometheus

import (
	"strings"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/waymark-net/waymark/internal/obs"
)

// collector turns the status of a moment into samples.
type collector struct {
	status func() obs.Status
	descs  []*client.Desc // by index of metrics
}

func newCollector(status func() obs.Status) *collector {
	c := &collector{status: status}
	for _, m := range metrics {
		c.descs = append(c.descs, client.NewDesc(m.Name, m.Help, m.Labels, nil))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *client.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- client.Metric) {
	status := c.status()
	for i, m := range metrics {
		kind := client.GaugeValue
		if m.Type == Counter {
			kind = client.CounterValue
		}
		for _, s := range samples(m, &status) {
			out <- client.MustNewConstMetric(c.descs[i], kind, s.value, s.labels...)
		}
	}
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
	m.collect(status, func(value float64, labels ...string) {
		for i := range labels {
			labels[i] = strings.ToValidUTF8(labels[i], "\ufffd") // interface names are any octets
		}
		key := strings.Join(labels, "\x00")
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
