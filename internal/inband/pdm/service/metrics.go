package service

import (
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
)

var perMarked = []string{"interface", "netns", "protocol"}

// metrics are there where the agent marks flows (RFC 8250), and empty
// elsewhere.
var metrics = slices.Concat(sums(), []prometheus.Metric{
	{
		Name: "waymark_pdm_policies", Type: prometheus.Gauge,
		Labels: []string{"state"},
		Help:   "Policies, by state: in_force, ended.",
		Collect: perStatus(func(p *Status, s *obs.Status, sample func(float64, ...string)) {
			inForce := 0
			for i := range p.Policies {
				if p.Policies[i].InForce(s.Now) {
					inForce++
				}
			}
			sample(float64(inForce), "in_force")
			sample(float64(len(p.Policies)-inForce), "ended")
		}),
	},
	{
		Name: "waymark_pdm_passed_packets_total", Type: prometheus.Counter,
		Labels: prometheus.PerReason,
		Help:   "Packets that match a policy but were not marked, or whose mark was not read, by reason.",
		Collect: perStatus(func(p *Status, _ *obs.Status, sample func(float64, ...string)) {
			for _, one := range p.Passed {
				sample(float64(one.Packets), one.Iface, one.Netns, one.Direction, one.Reason)
			}
		}),
	},
	{
		Name: "waymark_pdm_reduced_settings", Type: prometheus.Gauge,
		Labels: []string{"interface", "netns", "setting"},
		Help:   "Settings reduced while packets are marked: IPv6 MTU, gso_max_segs, MTUs of routes.",
		Collect: perStatus(func(p *Status, _ *obs.Status, sample func(float64, ...string)) {
			type setting struct{ iface, netns, name string }
			count := map[setting]int{}
			for _, r := range p.Reduced {
				count[setting{r.Iface, r.Netns, r.Setting}]++
			}
			for s, n := range count {
				sample(float64(n), s.iface, s.netns, s.name)
			}
		}),
	},
	one("waymark_pdm_stripped_packets_total", prometheus.Counter, "", "Received packets whose mark was removed before they reached the stack.",
		func(p *Status) float64 { return float64(p.Stripped) }),
	one("waymark_pdm_states", prometheus.Gauge, "", "Marked flows in the kernel's table at the last drain.",
		func(p *Status) float64 { return float64(p.Entries) }),
	one("waymark_pdm_max_states", prometheus.Gauge, "", "Capacity of the kernel's table of marked flows.",
		func(p *Status) float64 { return float64(p.MaxEntries) }),
	one("waymark_pdm_state_memory_bytes", prometheus.Gauge, "bytes", "Memory of the kernel's table of marked flows.",
		func(p *Status) float64 { return float64(p.MemoryBytes) }),
	one("waymark_pdm_created_states_total", prometheus.Counter, "", "Marked flows added to the table.",
		func(p *Status) float64 { return float64(p.Created) }),
	one("waymark_pdm_expired_states_total", prometheus.Counter, "", "Marked flows that expired.",
		func(p *Status) float64 { return float64(p.Expired) }),
	one("waymark_pdm_evicted_states_total", prometheus.Counter, "", "Marked flows evicted from a full table: their sequence numbers restart.",
		func(p *Status) float64 { return float64(p.Evicted) }),
	one("waymark_pdm_refused_packets_total", prometheus.Counter, "", "Packets of new flows sent unmarked: more flows started in one second than pdm.state allows.",
		func(p *Status) float64 { return float64(p.Refused) }),
	one("waymark_pdm_state_alerts_total", prometheus.Counter, "", "Drains that found evicted or refused states: more flows than pdm.state allows, possibly a flood.",
		func(p *Status) float64 { return float64(p.Alerts) }),
	one("waymark_pdm_fallbacks_total", prometheus.Counter, "", "Flows that continue unmarked because their marked packets did not arrive.",
		func(p *Status) float64 { return float64(p.Fallbacks) }),
	one("waymark_pdm_blocked_destinations_total", prometheus.Counter, "", "Destinations at which marked packets did not arrive; packets to them stay unmarked for ten minutes.",
		func(p *Status) float64 { return float64(p.Blocked) }),
	one("waymark_pdm_narrowed_paths_total", prometheus.Counter, "", "Paths with a smaller MTU than expected; packets above it stay unmarked for ten minutes.",
		func(p *Status) float64 { return float64(p.Narrowed) }),
	one("waymark_pdm_lost_delays_total", prometheus.Counter, "", "Delays dropped because their table was full.",
		func(p *Status) float64 { return float64(p.DelaysLost) }),
	one("waymark_pdm_lost_events_total", prometheus.Counter, "", "Raw events dropped by the rate limit or because the ring was full.",
		func(p *Status) float64 { return float64(p.EventsLost) }),
	one("waymark_pdm_drain_last_duration_seconds", prometheus.Gauge, "seconds", "Duration of the last drain of counts and delays from marks.",
		func(p *Status) float64 { return p.Drain.Seconds() }),
})

// sums are the fields of records that marks have, by interface and protocol.
func sums() (list []prometheus.Metric) {
	for i := range flow.Fields {
		f := &flow.Fields[i]
		if !strings.HasPrefix(f.Name, name+".") || f.Merge != flow.MergeSum {
			continue
		}
		kind, doc := prometheus.Counter, strings.TrimSuffix(f.Doc, "; absent: none")
		if f.Kind == flow.Signed {
			kind = prometheus.Gauge
		}
		list = append(list, prometheus.Metric{
			Name: f.MetricName(), Type: kind, Labels: perMarked, Help: strings.ToUpper(doc[:1]) + doc[1:] + ".",
			Collect: perStatus(func(p *Status, _ *obs.Status, sample func(float64, ...string)) {
				for j := range p.Totals {
					t := &p.Totals[j]
					value := f.Uint(&flow.Record{PDM: t.pdm()})
					sample(float64(int64(value)), t.Iface, t.Netns, t.Protocol)
				}
			}),
		})
	}
	return list
}

func perStatus(collect func(*Status, *obs.Status, func(float64, ...string))) prometheus.Collect {
	return func(s *obs.Status, sample func(float64, ...string)) {
		if p := StatusOf(s); p != nil {
			collect(p, s, sample)
		}
	}
}

func one(name string, kind prometheus.Type, unit, help string, value func(*Status) float64) prometheus.Metric {
	return prometheus.Metric{Name: name, Type: kind, Unit: unit, Help: help, Collect: perStatus(func(p *Status, _ *obs.Status, sample func(float64, ...string)) {
		sample(value(p))
	})}
}

// histograms are the delays by interface and protocol.
var histograms = []prometheus.Histogram{
	delays("waymark_pdm_server_delay_seconds", "Time at the peer from the arrival of a request to its answer, as reported in the peer's mark.",
		func(t *Total) *flow.Delays { return &t.Server }),
	delays("waymark_pdm_network_delay_seconds", "Round trips between the hosts, without the time at the peer.",
		func(t *Total) *flow.Delays { return &t.Network }),
}

func delays(name, help string, of func(*Total) *flow.Delays) prometheus.Histogram {
	return prometheus.Histogram{
		Metric: prometheus.Metric{Name: name, Type: prometheus.HistogramType, Unit: "seconds", Labels: perMarked, Help: help},
		Collect: func(s *obs.Status, sample func(*flow.Delays, ...string)) {
			p := StatusOf(s)
			if p == nil {
				return
			}
			for i := range p.Totals {
				t := &p.Totals[i]
				sample(of(t), t.Iface, t.Netns, t.Protocol)
			}
		},
	}
}
