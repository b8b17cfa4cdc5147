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
		"Policies that name the flows to mark, by state: in_force, ended.",
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
		"Packets that left with a mark, an offload burst as one.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Sent) }),
	},
	{
		"waymark_pdm_read_packets_total", Counter, "", perMarked,
		"Packets of marked flows whose mark was read and believed, an offload burst as one.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Received) }),
	},
	{
		"waymark_pdm_lost_packets", Gauge, "", perMarked,
		"Packets of peers that did not come; one that comes after its loss was reported offsets the next loss.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Lost) }),
	},
	{
		"waymark_pdm_reordered_packets_total", Counter, "", perMarked,
		"Packets of peers that came behind later ones.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Reordered) }),
	},
	{
		"waymark_pdm_duplicate_packets_total", Counter, "", perMarked,
		"Packets of peers that arrived more than once.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Duplicates) }),
	},
	{
		"waymark_pdm_suspicious_packets_total", Counter, "", perMarked,
		"Packets with impossible times, or with numbers that are not believed: kept out of the delays.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Suspicious) }),
	},
	{
		"waymark_pdm_discarded_packets_total", Counter, "", perMarked,
		"Packets in order that do not answer the packet sent last.",
		perMark(func(t *obs.PDMTotal) float64 { return float64(t.Discarded) }),
	},
	{
		"waymark_pdm_passed_packets_total", Counter, "", perReason,
		"Packets that a policy names and that got no mark, or whose mark was not read, with the reason.",
		perPDM(func(p *obs.PDM, _ *obs.Status, sample func(float64, ...string)) {
			for _, one := range p.Passed {
				sample(float64(one.Packets), one.Iface, one.Netns, one.Direction, one.Reason)
			}
		}),
	},
	{
		"waymark_pdm_reduced_settings", Gauge, "",
		[]string{"interface", "netns", "setting"},
		"Settings of an interface that are lower while packets are marked: its IPv6 MTU, gso_max_segs, MTUs of routes.",
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
	onePDM("waymark_pdm_stripped_packets_total", Counter, "", "Packets whose mark was taken off before the stack got them.",
		func(p *obs.PDM) float64 { return float64(p.Stripped) }),
	onePDM("waymark_pdm_states", Gauge, "", "Marked flows in the kernel's table at the last drain.",
		func(p *obs.PDM) float64 { return float64(p.Entries) }),
	onePDM("waymark_pdm_max_states", Gauge, "", "Marked flows that the kernel's table has room for.",
		func(p *obs.PDM) float64 { return float64(p.MaxEntries) }),
	onePDM("waymark_pdm_state_memory_bytes", Gauge, "bytes", "Memory of the kernel's table of marked flows.",
		func(p *obs.PDM) float64 { return float64(p.MemoryBytes) }),
	onePDM("waymark_pdm_created_states_total", Counter, "", "Marked flows that began.",
		func(p *obs.PDM) float64 { return float64(p.Created) }),
	onePDM("waymark_pdm_expired_states_total", Counter, "", "Marked flows that ended for their age.",
		func(p *obs.PDM) float64 { return float64(p.Expired) }),
	onePDM("waymark_pdm_evicted_states_total", Counter, "", "Marked flows evicted from a full table: their sequence numbers restart.",
		func(p *obs.PDM) float64 { return float64(p.Evicted) }),
	onePDM("waymark_pdm_refused_packets_total", Counter, "", "Packets of new flows that left without a mark: more began in a second than pdm.state allows.",
		func(p *obs.PDM) float64 { return float64(p.Refused) }),
	onePDM("waymark_pdm_state_alerts_total", Counter, "", "Drains that found states evicted or refused: more flows than pdm.state allows for, perhaps a flood.",
		func(p *obs.PDM) float64 { return float64(p.Alerts) }),
	onePDM("waymark_pdm_fallbacks_total", Counter, "", "Flows that went on without marks, since marked packets of them did not arrive.",
		func(p *obs.PDM) float64 { return float64(p.Fallbacks) }),
	onePDM("waymark_pdm_blocked_destinations_total", Counter, "", "Destinations where marked packets did not arrive: no packet to them is marked for ten minutes.",
		func(p *obs.PDM) float64 { return float64(p.Blocked) }),
	onePDM("waymark_pdm_narrowed_paths_total", Counter, "", "Paths that turned out to take shorter packets than expected: longer ones are not marked for ten minutes.",
		func(p *obs.PDM) float64 { return float64(p.Narrowed) }),
	onePDM("waymark_pdm_lost_delays_total", Counter, "", "Delays that found no room.",
		func(p *obs.PDM) float64 { return float64(p.DelaysLost) }),
	onePDM("waymark_pdm_lost_events_total", Counter, "", "Raw events beyond their rate, or that found no room.",
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
		Metric{"waymark_pdm_server_delay_seconds", Histogram, "seconds", perMarked, "Time at the peer, from a request's arrival to its answer, by the peer's own mark.", nil},
		func(t *obs.PDMTotal) *flow.Delays { return &t.Server },
	},
	{
		Metric{"waymark_pdm_network_delay_seconds", Histogram, "seconds", perMarked, "Round trips without the time at the peer.", nil},
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
