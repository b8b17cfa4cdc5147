package analyze

import (
	"github.com/waymark-net/waymark/internal/analyze/state"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/obs"
)

// deviceMetrics are those of devices without an agent.
func deviceMetrics() []prometheus.Metric {
	each := func(collect func(name string, d *state.Device, sample func(float64, ...string))) prometheus.Collect {
		return func(s *obs.Status, sample func(float64, ...string)) {
			if own := obs.SectionOf[state.Status](s, state.Section); own != nil {
				for i := range own.Hosts {
					if d := own.Hosts[i].Device; d != nil {
						collect(own.Hosts[i].Name, d, sample)
					}
				}
			}
		}
	}
	number := func(value func(*state.Device) float64) prometheus.Collect {
		return each(func(name string, d *state.Device, sample func(float64, ...string)) { sample(value(d), name) })
	}
	counts := func(value func(*state.Device) map[string]uint64) prometheus.Collect {
		return each(func(name string, d *state.Device, sample func(float64, ...string)) {
			for label, n := range value(d) {
				sample(float64(n), name, label)
			}
		})
	}
	receivers := func(s *obs.Status) []state.Receiver {
		if own := obs.SectionOf[state.Status](s, state.Section); own != nil {
			return own.Receivers
		}
		return nil
	}
	total := func(value func(*state.Receiver) uint64) prometheus.Collect {
		return func(s *obs.Status, sample func(float64, ...string)) {
			var sum uint64
			list := receivers(s)
			for i := range list {
				sum += value(&list[i])
			}
			if len(list) > 0 {
				sample(float64(sum))
			}
		}
	}
	refused := func(s *obs.Status, sample func(float64, ...string)) {
		sums := map[string]uint64{}
		for _, r := range receivers(s) {
			for reason, n := range r.Refused {
				sums[reason] += n
			}
		}
		for reason, n := range sums {
			sample(float64(n), reason)
		}
	}
	host := []string{"host"}
	return []prometheus.Metric{
		{Name: "waymark_receive_datagrams_total", Type: prometheus.Counter, Help: "Datagrams that came from devices without an agent.", Collect: total(func(r *state.Receiver) uint64 { return r.Datagrams })},
		{Name: "waymark_receive_kernel_dropped_datagrams_total", Type: prometheus.Counter, Help: "Datagrams that the kernel dropped, because the buffer of the socket was full.", Collect: total(func(r *state.Receiver) uint64 { return r.KernelDropped })},
		{Name: "waymark_receive_refused_datagrams_total", Type: prometheus.Counter, Labels: []string{"reason"}, Help: "Datagrams that were refused.", Collect: refused},
		{Name: "waymark_device_datagrams_total", Type: prometheus.Counter, Labels: host, Help: "Datagrams of a device.", Collect: number(func(d *state.Device) float64 { return float64(d.Datagrams) })},
		{Name: "waymark_device_repeated_datagrams_total", Type: prometheus.Counter, Labels: host, Help: "Of these, those that came twice, and count once.", Collect: number(func(d *state.Device) float64 { return float64(d.Repeated) })},
		{Name: "waymark_device_records_total", Type: prometheus.Counter, Labels: host, Help: "Records of flows of a device; of sFlow, samples of packets.", Collect: number(func(d *state.Device) float64 { return float64(d.Records) })},
		{Name: "waymark_device_summed_records_total", Type: prometheus.Counter, Labels: host, Help: "Flows beyond what an interval holds, of which there are only sums.", Collect: number(func(d *state.Device) float64 { return float64(d.Summed) })},
		{Name: "waymark_device_lost_total", Type: prometheus.Counter, Labels: []string{"host", "unit"}, Help: "What was lost on the way, by sequence numbers: datagrams, or records.", Collect: counts(func(d *state.Device) map[string]uint64 { return d.Lost })},
		{Name: "waymark_device_dropped_total", Type: prometheus.Counter, Labels: []string{"host", "reason"}, Help: "What of a device is in no flow: datagrams (malformed, rate), sets (no_template), templates, samples (no_flow, other_samples, device_drops), else records.", Collect: counts(func(d *state.Device) map[string]uint64 { return d.Dropped })},
		{Name: "waymark_device_sampling", Type: prometheus.Gauge, Labels: host, Help: "Latest rate that counts of a device were multiplied by; 0 or 1: none.", Collect: number(func(d *state.Device) float64 { return d.Sampling })},
	}
}
