package service

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/wire/ioam"
)

// Paths are those of traces that end at this node.
type Paths struct {
	Paths []Path `json:"paths"` // those with the most packets first
}

// Path is a path that traces showed.
type Path struct {
	ID          string     `json:"id"`
	Namespace   uint16     `json:"namespace"`
	TraceType   string     `json:"trace_type"`
	Overflow    bool       `json:"overflow,omitempty"` // nodes had no space for their data: hops may be missing
	Iface       string     `json:"iface"`
	Netns       string     `json:"netns,omitempty"`
	Source      netip.Addr `json:"src"` // of the first packet
	Destination netip.Addr `json:"dst"`
	First       time.Time  `json:"first"`
	Last        time.Time  `json:"last"`
	Packets     uint64     `json:"packets"`
	Bytes       uint64     `json:"bytes"`
	// Delay is from the first node to the last.
	Delay    *Times `json:"delay,omitempty"`
	Relative bool   `json:"relative,omitempty"` // the clocks of both do not agree: only changes of the delay mean something
	Hops     []Hop  `json:"hops"`               // from the encapsulating node on
	// Reached is how many of the hops packets made before a node sent their trace back to this one (loopback, RFC 9322); the
	// others are on the way back. Absent where packets came to their end.
	Reached int `json:"reached,omitempty"`
	// Flows are those on the path in the last two minutes; JSON has those with the most packets.
	FlowCount int        `json:"flow_count"`
	Flows     []PathFlow `json:"flows,omitempty"`
}

// PathFlow is a flow whose packets take a path.
type PathFlow struct {
	Proto   uint8         `json:"proto"`
	Src     netip.Addr    `json:"src"`
	SrcPort uint16        `json:"sport"`
	Dst     netip.Addr    `json:"dst"`
	DstPort uint16        `json:"dport"`
	Packets uint64        `json:"packets"`
	Mean    time.Duration `json:"mean_ns,omitempty"` // from the first node to the last
}

// maxPathFlows is how many flows of a path are shown.
const maxPathFlows = 10

// Hop is a node of a path; what its trace did not say is absent.
type Hop struct {
	Hop               int     `json:"hop"`
	HopLimit          *uint8  `json:"hop_limit,omitempty"`
	NodeID            *uint32 `json:"node_id,omitempty"`
	Ingress           *uint16 `json:"ingress,omitempty"`
	Egress            *uint16 `json:"egress,omitempty"`
	NodeIDWide        *string `json:"node_id_wide,omitempty"` // hexadecimal
	IngressWide       *uint32 `json:"ingress_wide,omitempty"`
	EgressWide        *uint32 `json:"egress_wide,omitempty"`
	NamespaceData     *string `json:"namespace_data,omitempty"` // hexadecimal
	NamespaceDataWide *string `json:"namespace_data_wide,omitempty"`
	Transit           *Times  `json:"transit,omitempty"`   // transit delay: from receipt to sending
	Link              *Times  `json:"link,omitempty"`      // one-way time to the next node, without the transit delay where that is known
	Relative          bool    `json:"relative,omitempty"`  // the clocks of both ends of the link do not agree: only changes mean something
	Drift             float64 `json:"drift_ppm,omitempty"` // by how much the clock of the next node runs faster, where that shows
}

// Times are times of the last one to two minutes, of all time where there was no packet.
type Times struct {
	Count uint64        `json:"count"`
	Mean  time.Duration `json:"mean_ns"`
	Min   time.Duration `json:"min_ns"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	Max   time.Duration `json:"max_ns"`

	all inbandioam.Times // since the path was seen first
}

// pathsPath is where the API has them.
const pathsPath = "/api/v1/paths"

var pathsPage = api.Page{
	Path: pathsPath,
	Doc:  "Paths of IOAM traces that end at this node, as `waymark paths -o json` shows them, where an IOAM namespace has `remove: true`; and of those that nodes sent back (loopback)",
	Missing: &api.Error{
		Status: http.StatusNotFound, What: "this agent is no IOAM node",
		How: "describe the node under ioam in the configuration, with a namespace that has remove: true, or an insertion with loopback: true",
	},
}

// page is what the API answers.
func (s *service) page() (any, error) {
	return s.paths(), nil
}

// nodesOfPaths are the names of this node, and of the nodes of each path.
func (s *service) nodesOfPaths() (own []string, all [][]string) {
	cfg := s.current()
	if cfg.Node.ID != ioam.Unavailable24 {
		own = append(own, fmt.Sprint(cfg.Node.ID))
	}
	if wide := number(cfg.Node.WideID, ioam.Unavailable56); wide != ioam.Unavailable56 {
		own = append(own, fmt.Sprintf(wideFormat, wide))
	}
	for _, p := range s.node.Paths() {
		var nodes []string
		path := s.path(&p)
		for i := range path.Hops[:cmp.Or(path.Reached, len(path.Hops))] {
			nodes = append(nodes, path.Hops[i].name())
		}
		all = append(all, nodes)
	}
	return own, all
}

// paths are all of them, with their flows.
func (s *service) paths() *Paths {
	out, index := &Paths{Paths: []Path{}}, map[inbandioam.PathID]int{}
	for _, p := range s.node.Paths() {
		index[p.ID] = len(out.Paths)
		out.Paths = append(out.Paths, s.path(&p))
	}
	for _, f := range s.node.Flows() {
		at, known := index[f.Path]
		if !known {
			continue
		}
		p := &out.Paths[at]
		if p.FlowCount++; p.FlowCount <= maxPathFlows {
			p.Flows = append(p.Flows, PathFlow{
				Proto: f.Proto, Src: f.Src.Addr(), SrcPort: f.Src.Port(), Dst: f.Dst.Addr(), DstPort: f.Dst.Port(), Packets: f.Packets, Mean: f.Mean(),
			})
		}
	}
	return out
}

// path is a path in the words of the API.
func (s *service) path(p *inbandioam.Path) Path {
	out := Path{
		ID: p.ID.String(), Namespace: p.Namespace, TraceType: p.Type.String(), Overflow: p.Overflow,
		Source: p.Source, Destination: p.Destination, First: p.First, Last: p.Last, Packets: p.Packets, Bytes: p.Bytes, Reached: p.Reached,
		Delay: timesOf(&p.Whole), Relative: p.Relative(), Hops: make([]Hop, len(p.Hops)),
	}
	out.Iface, out.Netns = s.deps.IfaceName(p.Iface)
	for i := range p.Hops {
		h := &p.Hops[i]
		out.Hops[i] = hopOf(i+1, &h.Hop)
		out.Hops[i].Drift = math.Round(h.Drift*1e7) / 10
		out.Hops[i].Transit, out.Hops[i].Link, out.Hops[i].Relative = timesOf(&h.Transit), timesOf(&h.Link), h.Relative
	}
	return out
}

// has is a value that the trace has, unless it is the one for "not available".
func has[T comparable](h *ioam.Hop, f ioam.TraceType, v, none T) *T {
	if !h.Type.Has(f) || v == none {
		return nil
	}
	return &v
}

// digits is a value of which bits mean something.
func digits[T comparable](v *T, format string) *string {
	if v == nil {
		return nil
	}
	text := fmt.Sprintf(format, *v)
	return &text
}

const wideFormat = "%014x"

// hopOf is what a node says of itself.
func hopOf(number int, h *ioam.Hop) Hop {
	out := Hop{
		Hop:               number,
		NodeID:            has(h, ioam.HopLimitNodeID, h.NodeID, ioam.Unavailable24),
		Ingress:           has(h, ioam.InterfaceIDs, h.Ingress, ioam.Unavailable16),
		Egress:            has(h, ioam.InterfaceIDs, h.Egress, ioam.Unavailable16),
		NodeIDWide:        digits(has(h, ioam.HopLimitNodeIDWide, h.NodeIDWide, ioam.Unavailable56), wideFormat),
		IngressWide:       has(h, ioam.InterfaceIDsWide, h.IngressWide, ioam.Unavailable32),
		EgressWide:        has(h, ioam.InterfaceIDsWide, h.EgressWide, ioam.Unavailable32),
		NamespaceData:     digits(has(h, ioam.NamespaceData, h.NamespaceData, ioam.Unavailable32), "%08x"),
		NamespaceDataWide: digits(has(h, ioam.NamespaceDataWide, h.NamespaceDataWide, ioam.Unavailable64), "%016x"),
	}
	switch {
	case h.Type.Has(ioam.HopLimitNodeID):
		out.HopLimit = &h.HopLimit
	case h.Type.Has(ioam.HopLimitNodeIDWide):
		out.HopLimit = &h.HopLimitWide
	}
	return out
}

// timesOf summarizes times; nil: there are none.
func timesOf(m *inbandioam.Measured) *Times {
	t := &m.Recent
	if t.Count == 0 {
		t = &m.All
	}
	if t.Count == 0 {
		return nil
	}
	return &Times{
		Count: t.Count, Mean: t.Mean(), Min: time.Duration(t.Min), P50: t.Quantile(0.5), P90: t.Quantile(0.9), Max: time.Duration(t.Max), all: m.All,
	}
}
