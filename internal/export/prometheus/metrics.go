package prometheus

import (
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
)

// Type of a metric.
type Type string

const (
	Counter Type = "counter" // grows; starts again with the agent or, of an interface, with its hook
	Gauge   Type = "gauge"

	HistogramType Type = "histogram"
)

// Metric is one metric family. The page that is scraped and the reference page
// are made of Metrics.
type Metric struct {
	Name   string
	Type   Type
	Unit   string // base unit; empty: a number of things
	Labels []string
	Help   string

	// Collect reports the samples; of one label set, those of a counter are summed.
	// Histograms have none.
	Collect Collect
}

// Collect reports the samples of a metric.
type Collect = func(s *obs.Status, sample func(value float64, labels ...string))

// Histogram is a metric of delays in classic buckets.
type Histogram struct {
	Metric
	Collect func(s *obs.Status, sample func(d *flow.Delays, labels ...string))
}

// Page is a part of the metrics: what stages add to those of the agent.
type Page struct {
	Metrics    []Metric
	Histograms []Histogram
}

// whole is the page with the metrics that every agent has.
func whole(stages Page) Page {
	return Page{Metrics: slices.Concat(metrics, stages.Metrics), Histograms: stages.Histograms}
}

// Metrics lists the agent's own metrics and those of stages; those of the Go runtime
// and the process come on top. No label is an address: their values number as
// interfaces, protocols and reasons do.
func Metrics(stages Page) []Metric {
	all := whole(stages).Metrics
	for _, h := range stages.Histograms {
		all = append(all, h.Metric)
	}
	return all
}

// metrics are those of the agent without stages, all but histograms.
var metrics = slices.Concat(agentMetrics, counterMetrics())

var (
	perInterface = []string{"interface", "netns", "direction"}
	perProtocol  = []string{"interface", "netns", "direction", "protocol"}
	PerReason    = []string{"interface", "netns", "direction", "reason"}
)

// counterMetrics are the counters of records, summed by protocol.
func counterMetrics() (list []Metric) {
	for i := range flow.CounterFields {
		f := &flow.CounterFields[i]
		doc, _, _ := strings.Cut(f.Doc, "; absent")
		unit := ""
		if f.Unit == "bytes" {
			unit = f.Unit
		}
		list = append(list, Metric{
			f.MetricName(), Counter, unit, perProtocol,
			strings.ToUpper(doc[:1]) + doc[1:] + ", of all flows by protocol.",
			perTotal(func(t *obs.Total) uint64 { return *f.Counter(&t.Counters) }),
		})
	}
	return list
}

var agentMetrics = []Metric{
	{
		"waymark_build_info", Gauge, "",
		[]string{"version"},
		"Always 1; the version of the agent.",
		func(s *obs.Status, sample func(float64, ...string)) { sample(1, s.Version) },
	},
	{
		"waymark_probe_info", Gauge, "",
		[]string{"probe"},
		"Always 1; how packets are counted.",
		func(s *obs.Status, sample func(float64, ...string)) { sample(1, s.Probe) },
	},
	{
		"waymark_start_time_seconds", Gauge, "seconds", nil,
		"Unix time at which the agent started.",
		one(func(s *obs.Status) float64 { return float64(s.Started.UnixMilli()) / 1000 }),
	},

	{
		"waymark_hooks", Gauge, "",
		[]string{"state"},
		"Hooks, by state: attached, waiting for their interface, failed.",
		func(s *obs.Status, sample func(float64, ...string)) {
			count := map[string]int{"attached": 0, "waiting": 0, "failed": 0}
			for _, h := range s.Hooks {
				count[h.State]++
			}
			for state, n := range count {
				sample(float64(n), state)
			}
		},
	},
	{
		"waymark_hook_attached", Gauge, "",
		[]string{"interface", "netns", "direction", "mode"},
		"1 when the hook is attached; in modes other than xdp and xdp-generic, packets of this direction are then counted.",
		func(s *obs.Status, sample func(float64, ...string)) {
			for _, h := range s.Hooks {
				attached := 0.
				if h.State == "attached" {
					attached = 1
				}
				sample(attached, h.Iface, h.Netns, h.Direction, h.Mode)
			}
		},
	},
	{
		"waymark_hook_warning", Gauge, "",
		[]string{"interface", "netns", "direction", "mode"},
		"1 when the hook is attached, but may miss packets or has no MTU headroom for marks; `waymark status` reports the reason.",
		func(s *obs.Status, sample func(float64, ...string)) {
			for _, h := range s.Hooks {
				if h.State == "attached" {
					warning := 0.
					if h.Warning != "" {
						warning = 1
					}
					sample(warning, h.Iface, h.Netns, h.Direction, h.Mode)
				}
			}
		},
	},

	{
		"waymark_flow_table_entries", Gauge, "", nil,
		"Flows in the kernel's flow table at the last drain.",
		one(func(s *obs.Status) float64 { return float64(s.Table.Entries) }),
	},
	{
		"waymark_flow_table_max_entries", Gauge, "", nil,
		"Capacity of the kernel's flow table.",
		one(func(s *obs.Status) float64 { return float64(s.Table.MaxEntries) }),
	},
	{
		"waymark_flow_table_memory_bytes", Gauge, "bytes", nil,
		"Memory of the kernel's flow table.",
		one(func(s *obs.Status) float64 { return float64(s.Table.MemoryBytes) }),
	},
	{
		"waymark_flow_table_evicted_flows_total", Counter, "", nil,
		"Flows evicted from the kernel's flow table between two drains; their packets are still counted.",
		one(func(s *obs.Status) float64 { return float64(s.Table.Evicted) }),
	},
	{
		"waymark_flow_table_shed_flows_total", Counter, "", nil,
		"Flows exported early with flowEndReason 5, because the agent's table was full.",
		one(func(s *obs.Status) float64 { return float64(s.Table.Shed) }),
	},
	{
		"waymark_flow_table_unattributed_packets_total", Counter, "", nil,
		"Packets that were counted without their flow: table and ring were full.",
		one(func(s *obs.Status) float64 { return float64(s.Table.Unattributed) }),
	},
	{
		"waymark_flow_table_counts_full_packets_total", Counter, "", nil,
		"Packets counted only here: the map of counters by reason was full.",
		one(func(s *obs.Status) float64 { return float64(s.Table.CountsFull) }),
	},
	{
		"waymark_api_connections", Gauge, "", nil,
		"Open connections to the API.",
		one(func(s *obs.Status) float64 { return float64(s.API.Connections) }),
	},
	{
		"waymark_api_connections_evicted_total", Counter, "", nil,
		"Idle or slow connections that were closed to accept new ones.",
		one(func(s *obs.Status) float64 { return float64(s.API.Evicted) }),
	},
	{
		"waymark_api_followers", Gauge, "", nil,
		"Clients that follow flows or marks.",
		one(func(s *obs.Status) float64 { return float64(s.API.Followers) }),
	},
	{
		"waymark_api_followers_dropped_total", Counter, "", nil,
		"Followers that were dropped because they read too slowly.",
		one(func(s *obs.Status) float64 { return float64(s.API.Dropped) }),
	},
	{
		"waymark_live_flows", Gauge, "", nil,
		"Flows in the agent's table, which keeps them until their timeout.",
		one(func(s *obs.Status) float64 { return float64(s.Table.Live) }),
	},

	{
		"waymark_drains_total", Counter, "", nil,
		"Drains of the kernel's table.",
		one(func(s *obs.Status) float64 { return float64(s.Drain.Count) }),
	},
	{
		"waymark_drain_errors_total", Counter, "", nil,
		"Drains that failed.",
		one(func(s *obs.Status) float64 { return float64(s.Drain.Errors) }),
	},
	{
		"waymark_drain_deltas_total", Counter, "", nil,
		"Flows read from the kernel's table, counted once per drain.",
		one(func(s *obs.Status) float64 { return float64(s.Drain.Deltas) }),
	},
	{
		"waymark_drain_records_total", Counter, "", nil,
		"Records passed to the exporters.",
		one(func(s *obs.Status) float64 { return float64(s.Drain.Records) }),
	},
	{
		"waymark_drain_last_duration_seconds", Gauge, "seconds", nil,
		"Duration of the last drain.",
		one(func(s *obs.Status) float64 { return s.Drain.Last.Seconds() }),
	},
	{
		"waymark_drain_last_grace_seconds", Gauge, "seconds", nil,
		"Part of the last drain spent waiting for running programs (grace period).",
		one(func(s *obs.Status) float64 { return s.Drain.Grace.Seconds() }),
	},
	{
		"waymark_scan_interval_seconds", Gauge, "seconds", nil,
		"Time between two drains.",
		one(func(s *obs.Status) float64 { return s.Drain.Interval.Seconds() }),
	},

	{
		"waymark_coverage_ratio", Gauge, "ratio", perInterface,
		"Packets and bytes counted, in flows or by reason, divided by the interface's own counters: 1 when none are missing.",
		func(s *obs.Status, sample func(float64, ...string)) {
			for _, i := range s.Interfaces {
				sample(i.Coverage, i.Iface, i.Netns, i.Direction)
			}
		},
	},
	{
		"waymark_interface_flow_packets_total", Counter, "", perInterface,
		"Packets on the wire in flows of the interface since its hook was attached.",
		perIface(func(i *obs.Interface) uint64 { return i.Packets }),
	},
	{
		"waymark_interface_flow_bytes_total", Counter, "bytes", perInterface,
		"Bytes on the wire in flows of the interface since its hook was attached.",
		perIface(func(i *obs.Interface) uint64 { return i.WireBytes }),
	},
	{
		"waymark_interface_own_packets_total", Counter, "", perInterface,
		"Packets by the interface's own counter since its hook was attached; it counts an offload burst as one frame or as its packets.",
		perIface(func(i *obs.Interface) uint64 { return i.IfacePackets }),
	},
	{
		"waymark_interface_own_bytes_total", Counter, "bytes", perInterface,
		"Bytes by the interface's own counter since its hook was attached.",
		perIface(func(i *obs.Interface) uint64 { return i.IfaceBytes }),
	},
	{
		"waymark_uncounted_packets_total", Counter, "", PerReason,
		"Packets in no flow, by reason.",
		perUncounted(func(r *obs.Reason) uint64 { return r.Packets }),
	},
	{
		"waymark_uncounted_bytes_total", Counter, "bytes", PerReason,
		"Bytes of frames in no flow, by reason.",
		perUncounted(func(r *obs.Reason) uint64 { return r.Bytes }),
	},

	{
		"waymark_losses_total", Counter, "",
		[]string{"where", "reason"},
		"Packets or records lost, by component and reason.",
		func(s *obs.Status, sample func(float64, ...string)) {
			for _, l := range s.Losses {
				sample(float64(l.Count), l.Where, l.Reason)
			}
		},
	},

	{
		"waymark_exporter_up", Gauge, "",
		[]string{"exporter"},
		"1 when the last attempt to export succeeded, 0 when it failed.",
		perExporter(func(e *obs.Exporter) float64 {
			if e.LastError != "" {
				return 0
			}
			return 1
		}),
	},
	{
		"waymark_exporter_queue_records", Gauge, "",
		[]string{"exporter"},
		"Records in the exporter's queue.",
		perExporter(func(e *obs.Exporter) float64 { return float64(e.Queued) }),
	},
	{
		"waymark_exporter_queue_max_records", Gauge, "",
		[]string{"exporter"},
		"Capacity of the exporter's queue.",
		perExporter(func(e *obs.Exporter) float64 { return float64(e.QueueSize) }),
	},
	{
		"waymark_exporter_records_total", Counter, "",
		[]string{"exporter"},
		"Records exported.",
		perExporter(func(e *obs.Exporter) float64 { return float64(e.Exported) }),
	},
	{
		"waymark_exporter_filtered_records_total", Counter, "",
		[]string{"exporter"},
		"Records that the exporter's filter does not match.",
		perExporter(func(e *obs.Exporter) float64 { return float64(e.Filtered) }),
	},
	{
		"waymark_exporter_retries_total", Counter, "",
		[]string{"exporter"},
		"Exports retried after a failure.",
		perExporter(func(e *obs.Exporter) float64 { return float64(e.Retries) }),
	},
	{
		"waymark_exporter_lost_records_total", Counter, "",
		[]string{"exporter", "where", "reason"},
		"Records lost in the queue or on the way to the output, by reason.",
		func(s *obs.Status, sample func(float64, ...string)) {
			for _, e := range s.Exporters {
				for _, l := range e.Lost {
					sample(float64(l.Count), e.Name, l.Where, l.Reason)
				}
			}
		},
	},

	{
		"waymark_program_runs_total", Counter, "",
		[]string{"program"},
		"Runs of the BPF program; counted while kernel.bpf_stats_enabled is 1.",
		perProgram(func(p *obs.Program) float64 { return float64(p.RunCount) }),
	},
	{
		"waymark_program_run_seconds_total", Counter, "seconds",
		[]string{"program"},
		"Time spent in the BPF program; counted while kernel.bpf_stats_enabled is 1.",
		perProgram(func(p *obs.Program) float64 { return float64(p.RunTime) / float64(time.Second) }),
	},
}

func one(value func(*obs.Status) float64) Collect {
	return func(s *obs.Status, sample func(float64, ...string)) { sample(value(s)) }
}

func perTotal(value func(*obs.Total) uint64) Collect {
	return func(s *obs.Status, sample func(float64, ...string)) {
		for i := range s.Totals {
			t := &s.Totals[i]
			sample(float64(value(t)), t.Iface, t.Netns, t.Direction, t.Protocol)
		}
	}
}

func perIface(value func(*obs.Interface) uint64) Collect {
	return func(s *obs.Status, sample func(float64, ...string)) {
		for k := range s.Interfaces {
			i := &s.Interfaces[k]
			sample(float64(value(i)), i.Iface, i.Netns, i.Direction)
		}
	}
}

func perUncounted(value func(*obs.Reason) uint64) Collect {
	return func(s *obs.Status, sample func(float64, ...string)) {
		for k := range s.Interfaces {
			i := &s.Interfaces[k]
			for r := range i.Uncounted {
				reason := &i.Uncounted[r]
				sample(float64(value(reason)), i.Iface, i.Netns, i.Direction, reason.Reason)
			}
		}
	}
}

func perExporter(value func(*obs.Exporter) float64) Collect {
	return func(s *obs.Status, sample func(float64, ...string)) {
		for i := range s.Exporters {
			sample(value(&s.Exporters[i]), s.Exporters[i].Name)
		}
	}
}

func perProgram(value func(*obs.Program) float64) Collect {
	return func(s *obs.Status, sample func(float64, ...string)) {
		for i := range s.Programs {
			sample(value(&s.Programs[i]), s.Programs[i].Name)
		}
	}
}
