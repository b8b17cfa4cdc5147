package service

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/flow"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
)

// PathStatus is what a node did with the traces and edge-to-edge options that end at it,
// since the agent started.
type PathStatus struct {
	Paths       int    `json:"paths"`
	MaxPaths    uint32 `json:"max_paths"`
	Changes     uint64 `json:"changes"`      // of the path of some flows
	Traces      uint64 `json:"traces"`       // that were added to a path
	ReportsLost uint64 `json:"reports_lost"` // reports of new paths, which came again later
	DelaysLost  uint64 `json:"delays_lost"`  // traces whose times were not kept
	FlowsLost   uint64 `json:"flows_lost"`   // traces whose flow was not kept
	RawLost     uint64 `json:"raw_lost"`     // traces for waymark paths --raw beyond its rate
	Edges       uint64 `json:"edges"`        // edge-to-edge options that were read
	EdgesLost   uint64 `json:"edges_lost"`   // those that were not counted
	Senders     []Edge `json:"senders,omitempty"`

	List []inbandioam.Path `json:"-"` // the metrics page has them
}

// Edge is what the edge-to-edge options of one sender say.
type Edge struct {
	Namespace  uint16     `json:"namespace"`
	Src        netip.Addr `json:"src"`
	Dst        netip.Addr `json:"dst"`
	Received   uint64     `json:"received"` // packets with a number, a GSO burst as one
	Lost       int64      `json:"lost"`
	Reordered  uint64     `json:"reordered"`
	Duplicates uint64     `json:"duplicates"`
	Discarded  uint64     `json:"discarded"` // numbers far from all others
	Restarts   uint64     `json:"restarts"`  // of the sender
	Delay      *Times     `json:"delay,omitempty"`
	Relative   bool       `json:"relative,omitempty"` // the clocks of both ends do not agree
}

// maxSenders is how many senders the status has: those with the most packets.
const maxSenders = 64

// pathStatus gathers the section; nil where no trace ends at the node, or comes back to it.
func (s *service) pathStatus(n *inbandioam.Node) (*PathStatus, error) {
	if !slices.ContainsFunc(n.Namespaces, func(ns inbandioam.Namespace) bool { return ns.Remove }) &&
		!slices.ContainsFunc(n.Insertions, func(in inbandioam.Insertion) bool { return in.Loops() }) {
		return nil, nil
	}
	stats, statsErr := s.node.PathStats()
	edges, edgesErr := s.node.Edges()
	out := &PathStatus{
		Paths: stats.Paths, MaxPaths: stats.MaxPaths, Changes: stats.Changes, Traces: stats.Traces, ReportsLost: stats.ReportsLost,
		DelaysLost: stats.DelaysLost, FlowsLost: stats.FlowsLost, RawLost: stats.RawLost, Edges: stats.Edges, EdgesLost: stats.EdgesLost,
		List: s.node.Paths(),
	}
	for _, e := range edges[:min(len(edges), maxSenders)] {
		out.Senders = append(out.Senders, Edge{
			Namespace: e.Namespace, Src: e.Source, Dst: e.Destination, Received: e.Received, Lost: e.Lost, Reordered: e.Reordered,
			Duplicates: e.Duplicates, Discarded: e.Discarded, Restarts: e.Restarts,
			Delay: timesOf(&inbandioam.Measured{All: e.Delay}), Relative: e.Relative,
		})
	}
	return out, errors.Join(statsErr, edgesErr)
}

// writePathStatus shows the section; nothing where no trace ends at the node.
func writePathStatus(w io.Writer, p *PathStatus) error {
	if p == nil {
		return nil
	}
	if err := term.Heading(w, "IOAM paths: %d of %d, %s traces, %s changes; lost: %s reports, %s delays, %s flows",
		p.Paths, p.MaxPaths, term.Count(p.Traces), term.Count(p.Changes), term.Count(p.ReportsLost), term.Count(p.DelaysLost), term.Count(p.FlowsLost)); err != nil {
		return err
	}
	t := &term.Table{Columns: []term.Column{
		{Title: "IOAM SENDER", Least: 12},
		{Title: "TO", Least: 12},
		{Title: "NAMESPACE", Right: true},
		{Title: "RECEIVED", Right: true},
		{Title: "LOST", Right: true},
		{Title: "REORD", Right: true},
		{Title: "DUP", Right: true},
		{Title: "DELAY", Right: true},
	}}
	for _, e := range p.Senders {
		t.Add(e.Src.String(), e.Dst.String(), fmt.Sprint(e.Namespace), term.Count(e.Received), fmt.Sprint(e.Lost),
			term.Count(e.Reordered), term.Count(e.Duplicates), span(e.Delay, e.Relative, median))
	}
	return term.Section(w, t)
}

// maxMetricPaths is how many paths the metrics have: those with the most packets.
const maxMetricPaths = 32

// eachPath calls f for the paths that the metrics have.
func eachPath(s *obs.Status, f func(*inbandioam.Path)) {
	n := StatusOf(s)
	if n == nil || n.Paths == nil {
		return
	}
	for i := range min(len(n.Paths.List), maxMetricPaths) {
		f(&n.Paths.List[i])
	}
}

// eachHop calls f for their hops, with namespace, path, number and node.
func eachHop(s *obs.Status, f func(h *inbandioam.Hop, labels ...string)) {
	eachPath(s, func(p *inbandioam.Path) {
		for i := range p.Hops {
			own := hopOf(i+1, &p.Hops[i].Hop)
			f(&p.Hops[i], fmt.Sprint(p.Namespace), p.ID.String(), fmt.Sprint(i+1), own.name())
		}
	})
}

func pathCounter(name, help string, value func(*PathStatus) uint64) prometheus.Metric {
	return prometheus.Metric{Name: name, Type: prometheus.Counter, Help: help, Collect: func(s *obs.Status, sample func(float64, ...string)) {
		if n := StatusOf(s); n != nil && n.Paths != nil {
			sample(float64(value(n.Paths)))
		}
	}}
}

func edgeMetric(name string, kind prometheus.Type, help string, value func(*Edge) float64) prometheus.Metric {
	return prometheus.Metric{
		Name: name, Type: kind, Labels: []string{"namespace", "src", "dst"}, Help: help,
		Collect: func(s *obs.Status, sample func(float64, ...string)) {
			if n := StatusOf(s); n != nil && n.Paths != nil {
				for i := range n.Paths.Senders {
					e := &n.Paths.Senders[i]
					sample(value(e), fmt.Sprint(e.Namespace), e.Src.String(), e.Dst.String())
				}
			}
		},
	}
}

// pathMetrics are there where traces end at the node, and empty elsewhere.
var pathMetrics = []prometheus.Metric{
	{
		Name: "waymark_ioam_paths", Type: prometheus.Gauge, Help: "Paths of traces that end at this node.",
		Collect: func(s *obs.Status, sample func(float64, ...string)) {
			if n := StatusOf(s); n != nil && n.Paths != nil {
				sample(float64(n.Paths.Paths))
			}
		},
	},
	pathCounter("waymark_ioam_path_changes_total", "Flows between two hosts that moved from one path to another.", func(p *PathStatus) uint64 { return p.Changes }),
	pathCounter("waymark_ioam_path_lost_reports_total", "Reports of new paths that did not fit the ring; they come again later.", func(p *PathStatus) uint64 { return p.ReportsLost }),
	pathCounter("waymark_ioam_path_lost_delays_total", "Traces whose times were not kept because their table was full.", func(p *PathStatus) uint64 { return p.DelaysLost }),
	pathCounter("waymark_ioam_path_lost_flows_total", "Traces whose flow was not kept because the table was full.", func(p *PathStatus) uint64 { return p.FlowsLost }),
	pathCounter("waymark_ioam_e2e_lost_options_total", "Edge-to-edge options that were not counted: too many senders, or CPUs that read of one.", func(p *PathStatus) uint64 { return p.EdgesLost }),
	{
		Name: "waymark_ioam_path_packets_total", Type: prometheus.Counter, Labels: []string{"namespace", "path"},
		Help: "Packets with a trace, by path: the 32 paths with the most packets.",
		Collect: func(s *obs.Status, sample func(float64, ...string)) {
			eachPath(s, func(p *inbandioam.Path) { sample(float64(p.Packets), fmt.Sprint(p.Namespace), p.ID.String()) })
		},
	},
	{
		Name: "waymark_ioam_link_relative", Type: prometheus.Gauge, Labels: []string{"namespace", "path", "hop", "node"},
		Help: "1: the clocks of a node and the next one do not agree, so that times of the link are only relative; the 32 paths with the most packets.",
		Collect: func(s *obs.Status, sample func(float64, ...string)) {
			eachHop(s, func(h *inbandioam.Hop, labels ...string) {
				if h.Link.All.Count > 0 {
					sample(boolean(h.Relative), labels...)
				}
			})
		},
	},
	edgeMetric("waymark_ioam_e2e_received_total", prometheus.Counter, "Packets with an edge-to-edge sequence number, a GSO burst as one: the 64 senders with the most packets.", func(e *Edge) float64 { return float64(e.Received) }),
	edgeMetric("waymark_ioam_e2e_lost", prometheus.Gauge, "Packets of a sender of edge-to-edge options that did not arrive; less again when one arrives late.", func(e *Edge) float64 { return float64(e.Lost) }),
	edgeMetric("waymark_ioam_e2e_reordered_total", prometheus.Counter, "Packets with an edge-to-edge sequence number that arrived behind later ones.", func(e *Edge) float64 { return float64(e.Reordered) }),
	edgeMetric("waymark_ioam_e2e_duplicates_total", prometheus.Counter, "Packets with an edge-to-edge sequence number that arrived before.", func(e *Edge) float64 { return float64(e.Duplicates) }),
}

// pathHistograms are those of the paths with the most packets. Links whose ends have clocks
// that do not agree are left out.
var pathHistograms = []prometheus.Histogram{
	hopHistogram("waymark_ioam_transit_delay_seconds", "Transit delay of a node, by path and hop: the 32 paths with the most packets.",
		func(h *inbandioam.Hop) flow.Delays { return h.Transit.All.Delays() }),
	hopHistogram("waymark_ioam_link_delay_seconds", "One-way time from a node to the next one, by path and hop: the 32 paths with the most packets, links between clocks that agree.",
		func(h *inbandioam.Hop) flow.Delays {
			if h.Relative {
				return flow.Delays{}
			}
			return h.Link.All.Delays()
		}),
}

func hopHistogram(name, help string, of func(*inbandioam.Hop) flow.Delays) prometheus.Histogram {
	return prometheus.Histogram{
		Metric: prometheus.Metric{Name: name, Type: prometheus.HistogramType, Unit: "seconds", Labels: []string{"namespace", "path", "hop", "node"}, Help: help},
		Collect: func(s *obs.Status, sample func(*flow.Delays, ...string)) {
			eachHop(s, func(h *inbandioam.Hop, labels ...string) {
				if d := of(h); d.Count > 0 {
					sample(&d, labels...)
				}
			})
		},
	}
}
