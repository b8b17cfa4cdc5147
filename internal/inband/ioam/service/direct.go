package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/flow"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/wire/ioam"
)

// DirectStatus is what the node did with packets that have a direct export option, since the agent
// started. Each such packet is exported, limited, or lost.
type DirectStatus struct {
	Every    uint32 `json:"every"`
	Rate     uint32 `json:"rate"`
	Exported uint64 `json:"exported"` // packets of which there is a record
	Limited  uint64 `json:"limited"`  // packets that every and rate left out
	Lost     uint64 `json:"lost"`     // packets whose record did not fit the ring
	Unread   uint64 `json:"unread"`   // records that nobody was there to read
}

// count adds what the node counts by reason.
func (d *DirectStatus) count(counts []inbandioam.Count) {
	for _, c := range counts {
		switch c.Reason {
		case "export_not_sampled", "export_rate":
			d.Limited += c.Packets
		case "export_lost":
			d.Lost += c.Packets
		}
	}
}

// write shows the counts; nothing where no packet asked for export.
func (d *DirectStatus) write(w io.Writer) error {
	if d.Exported+d.Limited+d.Lost == 0 {
		return nil
	}
	return term.Heading(w, "IOAM direct export: %s packets exported, %s limited, %s lost; %s records unread",
		term.Count(d.Exported), term.Count(d.Limited), term.Count(d.Lost), term.Count(d.Unread))
}

// directMetrics have no reason: waymark_ioam_passed_options_total has.
var directMetrics = []prometheus.Metric{
	counter("waymark_ioam_exported_packets_total", "Packets with a direct export option of which a record was exported.", func(n *Status) uint64 { return n.Direct.Exported }),
	counter("waymark_ioam_export_limited_packets_total", "Packets with a direct export option that the limits of direct export left out.", func(n *Status) uint64 { return n.Direct.Limited }),
	counter("waymark_ioam_export_lost_packets_total", "Packets with a direct export option whose record was lost.", func(n *Status) uint64 { return n.Direct.Lost }),
	counter("waymark_ioam_export_unread_records_total", "Records of direct export that nobody was there to read.", func(n *Status) uint64 { return n.Direct.Unread }),
}

// DirectEvent is what the node exported of one packet. What it has in common with the trace of a packet has
// the same name.
type DirectEvent struct {
	Event     string     `json:"event"` // export
	Time      time.Time  `json:"time"`
	Iface     string     `json:"iface"` // where the packet arrived
	Netns     string     `json:"netns,omitempty"`
	Namespace uint16     `json:"namespace"`
	Src       netip.Addr `json:"src"`
	Dst       netip.Addr `json:"dst"`
	Proto     uint8      `json:"proto"`
	SrcPort   uint16     `json:"sport,omitempty"`
	DstPort   uint16     `json:"dport,omitempty"`
	Packets   uint32     `json:"packets"` // on the wire: a GSO burst counts as its segments
	TraceType string     `json:"trace_type"`
	Flags     uint8      `json:"flags,omitempty"`
	FlowID    *uint32    `json:"flow_id,omitempty"`
	Sequence  *uint32    `json:"sequence,omitempty"`
	Hops      []EventHop `json:"hops"` // this node alone

	// Missed is how many events before this one the reader was too slow for.
	Missed uint64 `json:"missed,omitempty"`
}

// Line implements api.Event.
func (e *DirectEvent) Line(missed uint64) ([]byte, error) {
	sent := *e
	sent.Missed = missed
	return json.Marshal(&sent)
}

// exportsPath is where the API has records.
const exportsPath = "/api/v1/paths/exports"

var exportsStream = api.Stream{
	Path: exportsPath, Missing: pathsPage.Missing,
	Doc: "What this node exports of packets with a direct export option (RFC 9326), as `waymark paths --exports -o jsonl` shows it, within the limits of ioam.direct_export",
}

// exports emits records.
func (s *service) exports(ctx context.Context, emit func(api.Event)) error {
	return s.node.StreamExported(ctx, func(e *inbandioam.Exported) { emit(s.directEvent(e)) })
}

func (s *service) directEvent(e *inbandioam.Exported) *DirectEvent {
	out := &DirectEvent{
		Event: "export", Time: e.Time, Namespace: e.Option.Namespace, Src: e.Source.Addr(), Dst: e.Destination.Addr(), Proto: e.Proto,
		SrcPort: e.Source.Port(), DstPort: e.Destination.Port(), Packets: e.Packets, TraceType: e.Option.Type.String(), Flags: e.Option.Flags,
		Hops: []EventHop{s.eventHop(1, &e.Hop, e.Time)},
	}
	out.Iface, out.Netns = s.deps.IfaceName(e.Iface)
	if e.Option.Extension&ioam.DEXFlowID != 0 {
		out.FlowID = &e.Option.FlowID
	}
	if e.Option.Extension&ioam.DEXSequence != 0 {
		out.Sequence = &e.Option.Sequence
	}
	return out
}

// followExports writes records as they come.
func followExports(ctx context.Context, c stage.Call) error {
	switch {
	case c.Options["follow"] || c.Options["raw"]:
		return errors.New("--exports is a stream of its own: leave out --follow and --raw")
	case c.Arg != "":
		return fmt.Errorf("--exports shows all packets: leave out %s", c.Arg)
	case c.Format == "csv":
		return errors.New("events have no common columns: write -o jsonl")
	}
	return c.Agent.Stream(ctx, exportsPath, func(raw json.RawMessage) error {
		if c.Format != "table" {
			_, err := fmt.Fprintf(c.Out, "%s\n", raw)
			return err
		}
		var e DirectEvent
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		_, err := fmt.Fprintln(c.Out, e.text())
		return err
	})
}

// text is a line for people.
func (e *DirectEvent) text() string {
	line := fmt.Sprintf("%s namespace %d %s %s > %s", e.Time.Local().Format("15:04:05.000000"), e.Namespace, flow.ProtoName(e.Proto),
		netip.AddrPortFrom(e.Src, e.SrcPort), netip.AddrPortFrom(e.Dst, e.DstPort))
	if e.FlowID != nil {
		line += fmt.Sprintf(" flow %08x", *e.FlowID)
	}
	if e.Sequence != nil {
		line += fmt.Sprintf(" packet %d", *e.Sequence)
	}
	for i := range e.Hops {
		h := &e.Hops[i]
		line += fmt.Sprintf(": node %s, in %s, out %s", h.name(), ids(h.Ingress, h.IngressWide), ids(h.Egress, h.EgressWide))
		if d := h.TransitDelay; d != nil {
			line += fmt.Sprintf(", transit %v", *d)
		}
	}
	return line
}
