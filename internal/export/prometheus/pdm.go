package prometheus

import (
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/obs"
)

var perMarked = []string{"interface", "netns", "protocol"}

// pdmMetrics are there where the agent marks flows (RFC 8250), and empty
// elsewhere.
var pdmMetrics = []Metric{
	{
		"waymark_pdm_policies", Gauge, "",
		[]string{"state"},
		"Policies, by state: in_force, ended.",
		perPDM(func(p *obs.PDM, s *obs.Status, sample func(float64, ...string)) {
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
		"waymark_pdm_marked_packets_total", Counter, "", perMarked,
		"Packets marked and sent; an offload burst counts as one.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Sent) }),
	},
	{
		"waymark_pdm_read_packets_total", Counter, "", perMarked,
		"Packets whose mark was read and accepted; an offload burst counts as one.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Received) }),
	},
	{
		"waymark_pdm_lost_packets", Gauge, "", perMarked,
		"Marked packets of peers that did not arrive; a late packet, already counted as lost, is subtracted.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Lost) }),
	},
	{
		"waymark_pdm_reordered_packets_total", Counter, "", perMarked,
		"Marked packets of peers that arrived after later ones.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Reordered) }),
	},
	{
		"waymark_pdm_duplicate_packets_total", Counter, "", perMarked,
		"Marked packets of peers that arrived more than once.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Duplicates) }),
	},
	{
		"waymark_pdm_suspicious_packets_total", Counter, "", perMarked,
		"Marked packets with impossible times or implausible sequence numbers, excluded from the delays.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Suspicious) }),
	},
	{
		"waymark_pdm_discarded_packets_total", Counter, "", perMarked,
		"Marked packets in order that do not answer the packet sent last; they give no delay.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Discarded) }),
	},
	{
		"waymark_pdm_passed_packets_total", Counter, "", perReason,
		"Packets that match a policy but were not marked, or whose mark was not read, by reason.",
		perPDM(func(p *obs.PDM, _ *obs.Status, sample func(float64, ...string)) {
			for _, one := range p.Passed {
				sample(float64(one.Packets), one.Iface, one.Netns, one.Direction, one.Reason)
			}
		}),
	},
	{
		"waymark_pdm_reduced_settings", Gauge, "",
		[]string{"interface", "netns", "setting"},
		"Settings reduced while packets are marked: IPv6 MTU, gso_max_segs, MTUs of routes.",
		perPDM(func(p *obs.PDM, _ *obs.Status, sample func(float64, ...string)) {
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
	onePDM("waymark_pdm_stripped_packets_total", Counter, "", "Received packets whose mark was removed before they reached the stack.",
		func(p *obs.PDM) float64 { return float64(p.Stripped) }),
	onePDM("waymark_pdm_states", Gauge, "", "Marked flows in the kernel's table at the last drain.",
		func(p *obs.PDM) float64 { return float64(p.Entries) }),
	onePDM("waymark_pdm_max_states", Gauge, "", "Capacity of the kernel's table of marked flows.",
		func(p *obs.PDM) float64 { return float64(p.MaxEntries) }),
	onePDM("waymark_pdm_state_memory_bytes", Gauge, "bytes", "Memory of the kernel's table of marked flows.",
		func(p *obs.PDM) float64 { return float64(p.MemoryBytes) }),
	onePDM("waymark_pdm_created_states_total", Counter, "", "Marked flows added to the table.",
		func(p *obs.PDM) float64 { return float64(p.Created) }),
	onePDM("waymark_pdm_expired_states_total", Counter, "", "Marked flows that expired.",
		func(p *obs.PDM) float64 { return float64(p.Expired) }),
	onePDM("waymark_pdm_evicted_states_total", Counter, "", "Marked flows evicted from a full table: their sequence numbers restart.",
		func(p *obs.PDM) float64 { return float64(p.Evicted) }),
	onePDM("waymark_pdm_refused_packets_total", Counter, "", "Packets of new flows sent unmarked: more flows started in one second than pdm.state allows.",
		func(p *obs.PDM) float64 { return float64(p.Refused) }),
	onePDM("waymark_pdm_state_alerts_total", Counter, "", "Drains that found evicted or refused states: more flows than pdm.state allows, possibly a flood.",
		func(p *obs.PDM) float64 { return float64(p.Alerts) }),
	onePDM("waymark_pdm_fallbacks_total", Counter, "", "Flows that continue unmarked because their marked packets did not arrive.",
		func(p *obs.PDM) float64 { return float64(p.Fallbacks) }),
	onePDM("waymark_pdm_blocked_destinations_total", Counter, "", "Destinations at which marked packets did not arrive; packets to them stay unmarked for ten minutes.",
		func(p *obs.PDM) float64 { return float64(p.Blocked) }),
	onePDM("waymark_pdm_narrowed_paths_total", Counter, "", "Paths with a smaller MTU than expected; packets above it stay unmarked for ten minutes.",
		func(p *obs.PDM) float64 { return float64(p.Narrowed) }),
	onePDM("waymark_pdm_lost_delays_total", Counter, "", "Delays dropped because their table was full.",
		func(p *obs.PDM) float64 { return float64(p.DelaysLost) }),
	onePDM("waymark_pdm_lost_events_total", Counter, "", "Raw events dropped by the rate limit or because the ring was full.",
		func(p *obs.PDM) float64 { return float64(p.EventsLost) }),
	onePDM("waymark_pdm_drain_last_duration_seconds", Gauge, "seconds", "Duration of the last drain of counts and delays from marks.",
		func(p *obs.PDM) float64 { return p.Drain.Seconds() }),
}

func perPDM(collect func(*obs.PDM, *obs.Status, func(float64, ...string))) collect {
	return func(s *obs.Status, sample func(float64, ...string)) {
		if s.PDM != nil {
			collect(s.PDM, s, sample)
		}
	}
}

func perMark(value func(*obs.PDMTotal) float64) collect {
	return perPDM(func(p *obs.PDM, _ *obs.Status, sample func(float64, ...string)) {
		for i := range p.Totals {
			t := &p.Totals[i]
			sample(value(t), t.Iface, t.Netns, t.Protocol)
		}
	})
}

func onePDM(name string, kind Type, unit, help string, value func(*obs.PDM) float64) Metric {
	return Metric{name, kind, unit, nil, help, perPDM(func(p *obs.PDM, _ *obs.Status, sample func(float64, ...string)) {
		sample(value(p))
	})}
}

// delayHistogram is a metric of delays in classic buckets.
type delayHistogram struct {
	Metric
	of func(*obs.PDMTotal) *flow.Delays
}

var delayHistograms = []delayHistogram{
	{
		Metric{"waymark_pdm_server_delay_seconds", Histogram, "seconds", perMarked, "Time at the peer from the arrival of a request to its answer, as reported in the peer's mark.", nil},
		func(t *obs.PDMTotal) *flow.Delays { return &t.Server },
	},
	{
		Metric{"waymark_pdm_network_delay_seconds", Histogram, "seconds", perMarked, "Round trips between the hosts, without the time at the peer.", nil},
		func(t *obs.PDMTotal) *flow.Delays { return &t.Network },
	},
}

// Bounds of the classic buckets: powers of two of a nanosecond, where buckets of
// inband end, too. So counts are exact. The first is 33 µs, the last 17 s.
const (
	firstBoundBits = 15
	lastBoundBits  = 34
)

// classic counts the delays up to each bound, in seconds.
func classic(d *flow.Delays) map[float64]uint64 {
	counts := make(map[float64]uint64, lastBoundBits-firstBoundBits+1)
	var sum uint64
	next := 0
	for bits := firstBoundBits; bits <= lastBoundBits; bits++ {
		for next < len(d.Buckets) {
			if _, to := inband.BucketBounds(int(d.Buckets[next].Index)); to > 1<<bits {
				break
			}
			sum += d.Buckets[next].Count
			next++
		}
		counts[time.Duration(1<<bits).Seconds()] = sum
	}
	return counts
}
