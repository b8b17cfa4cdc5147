package service

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/internal/term"
)

var pathsVerb = stage.Verb{
	Name: "paths", Arg: "ID",
	Short: "Show paths as hops with their delays, from IOAM traces",
	Long: `Paths shows the paths of packets whose IOAM traces (RFC 9197) end at this node: the nodes
that each path has, and how long packets take. Traces end at a node whose configuration has
remove: true for their namespace. A node that inserts traces with loopback: true also shows
how far packets came: nodes send the traces back (RFC 9322), and 1 > 2 > 3 < 2 < 1 means that
node 3 did. Packets that got lost further on still show the hops before.

With an ID, or its first digits, it shows one path hop by hop: node and interface ids, the
transit delay of each node, and the one-way time of each link. Times are those of the last
one to two minutes. A link time marked with ~ is relative: the clocks of its ends do not
agree, so only changes of it mean something. Transit delays need one clock only.

--follow shows new paths, and flows that move from one path to another, until interrupted.
--raw shows the traces of packets one by one, at most 100 per second and CPU; waymark status
counts the others. --exports shows what this node exports of packets with a direct export
option (RFC 9326), as far as ioam.direct_export allows.`,
	Example: `  waymark paths
  waymark paths 3f1c
  waymark paths --follow
  waymark paths --raw -o jsonl
  waymark paths --exports -o jsonl
  waymark paths -o json | jq '.paths[] | {id, hops: [.hops[].node_id]}'`,
	Formats: []string{"table", "json", "jsonl", "csv"},
	Options: []stage.Option{{Name: "follow", Doc: "show new paths and changes until interrupted"}, {Name: "raw", Doc: "show traces one by one until interrupted"}, {Name: "exports", Doc: "show records of direct export until interrupted"}},
	Run:     runPaths,
}

func runPaths(ctx context.Context, c stage.Call) error {
	if c.Options["exports"] {
		return followExports(ctx, c)
	}
	if c.Options["follow"] || c.Options["raw"] {
		return followPaths(ctx, c)
	}
	var answer Paths
	if err := c.Agent.Page(ctx, pathsPath, &answer); err != nil {
		return err
	}
	if c.Arg != "" {
		one, err := answer.find(c.Arg)
		if err != nil {
			return err
		}
		answer.Paths = []Path{*one}
	}
	switch c.Format {
	case "json":
		return json.NewEncoder(c.Out).Encode(answer)
	case "jsonl":
		out := json.NewEncoder(c.Out)
		for i := range answer.Paths {
			if err := out.Encode(&answer.Paths[i]); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		return writeHopRows(c.Out, answer.Paths)
	}
	if c.Arg != "" {
		return writePath(c.Out, &answer.Paths[0])
	}
	return writePaths(c.Out, answer.Paths)
}

// find is the path with an id, or with its first digits.
func (p *Paths) find(id string) (found *Path, err error) {
	for i := range p.Paths {
		if !strings.HasPrefix(p.Paths[i].ID, strings.ToLower(id)) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("paths %s and %s both begin with %s: write more digits", found.ID, p.Paths[i].ID, id)
		}
		found = &p.Paths[i]
	}
	if found == nil {
		return nil, fmt.Errorf("no path %s: waymark paths lists them", id)
	}
	return found, nil
}

// name is the node's id, the short one if it has both.
func (h *Hop) name() string {
	switch {
	case h.NodeID != nil:
		return fmt.Sprint(*h.NodeID)
	case h.NodeIDWide != nil:
		return *h.NodeIDWide
	}
	return "?"
}

// nodes are the hops of a path in short.
func (p *Path) nodes() string {
	text := hopNames(len(p.Hops), p.Reached, func(i int) string { return p.Hops[i].name() })
	if p.Overflow {
		text += " > …"
	}
	return text
}

// hopNames are hops in short: there, and from the last one reached back.
func hopNames(n, reached int, name func(int) string) (text string) {
	for i := range n {
		switch {
		case reached > 0 && i >= reached:
			text += " < "
		case i > 0:
			text += " > "
		}
		text += name(i)
	}
	return text
}

// span is a time that may be below 0; "-": there is none.
func span(t *Times, relative bool, of func(*Times) time.Duration) string {
	if t == nil {
		return "-"
	}
	text, d := "", of(t)
	switch {
	case d == 0:
		text = "0"
	case d < 0:
		text = "-" + term.Duration(-d)
	default:
		text = term.Duration(d)
	}
	if relative {
		text = "~" + text
	}
	return text
}

func median(t *Times) time.Duration { return t.P50 }
func p90(t *Times) time.Duration    { return t.P90 }

func writePaths(w io.Writer, paths []Path) error {
	if len(paths) == 0 {
		_, err := fmt.Fprintln(w, "no trace has ended at this node yet: packets need a trace of a namespace that has remove: true here, or come back to an insertion with loopback: true")
		return err
	}
	t := &term.Table{Columns: []term.Column{
		{Title: "PATH"},
		{Title: "NS", Right: true},
		{Title: "SOURCE", Least: 12},
		{Title: "DESTINATION", Least: 12},
		{Title: "HOPS", Least: 12},
		{Title: "PACKETS", Right: true},
		{Title: "DELAY", Right: true},
		{Title: "P90", Right: true},
	}}
	for i := range paths {
		p := &paths[i]
		t.Add(p.ID, fmt.Sprint(p.Namespace), p.Source.String(), p.Destination.String(), p.nodes(),
			term.Count(p.Packets), span(p.Delay, p.Relative, median), span(p.Delay, p.Relative, p90))
	}
	return t.Write(w, term.Width(w))
}

func writePath(w io.Writer, p *Path) error {
	if _, err := fmt.Fprintf(w, "path %s  namespace %d  %s > %s  %s packets  %s to %s\n", p.ID, p.Namespace, p.Source, p.Destination,
		term.Count(p.Packets), p.First.Local().Format(time.DateTime), p.Last.Local().Format(time.DateTime)); err != nil {
		return err
	}
	if p.Reached > 0 {
		if _, err := fmt.Fprintf(w, "sent back by node %s, hop %d (loopback); the hops behind it are those of the way back\n", p.Hops[p.Reached-1].name(), p.Reached); err != nil {
			return err
		}
	}
	if p.Overflow {
		if _, err := fmt.Fprintln(w, "the traces had no space for some of the last nodes: insert them with a larger size"); err != nil {
			return err
		}
	}
	t := &term.Table{Columns: []term.Column{
		{Title: "HOP", Right: true},
		{Title: "NODE"},
		{Title: "IN", Right: true},
		{Title: "OUT", Right: true},
		{Title: "TRANSIT", Right: true},
		{Title: "P90", Right: true},
		{Title: "LINK TO NEXT", Right: true},
		{Title: "P90", Right: true},
	}}
	relative := p.Relative
	for i := range p.Hops {
		h := &p.Hops[i]
		relative = relative || h.Relative
		t.Add(fmt.Sprint(h.Hop), h.name(), ids(h.Ingress, h.IngressWide), ids(h.Egress, h.EgressWide),
			span(h.Transit, false, median), span(h.Transit, false, p90), span(h.Link, h.Relative, median), span(h.Link, h.Relative, p90))
	}
	t.Add("", "whole", "", "", "", "", span(p.Delay, p.Relative, median), span(p.Delay, p.Relative, p90))
	if err := t.Write(w, term.Width(w)); err != nil {
		return err
	}
	flows := &term.Table{Columns: []term.Column{
		{Title: "FLOW", Least: 20}, {Title: "PROTO"}, {Title: "PACKETS", Right: true}, {Title: "MEAN DELAY", Right: true},
	}}
	for _, f := range p.Flows {
		mean := &Times{Mean: f.Mean}
		if f.Mean == 0 {
			mean = nil
		}
		flows.Add(fmt.Sprintf("%s > %s", netip.AddrPortFrom(f.Src, f.SrcPort), netip.AddrPortFrom(f.Dst, f.DstPort)), flow.ProtoName(f.Proto),
			term.Count(f.Packets), span(mean, p.Relative, func(t *Times) time.Duration { return t.Mean }))
	}
	if err := term.Section(w, flows); err != nil {
		return err
	}
	if relative {
		if _, err := fmt.Fprintln(w, "~ relative: the clocks of both nodes do not agree, so only changes of the time mean something; synchronize them (NTP, PTP)"); err != nil {
			return err
		}
		for i := range p.Hops[:max(len(p.Hops)-1, 0)] {
			if h := &p.Hops[i]; h.Drift != 0 {
				if _, err := fmt.Fprintf(w, "  the clock of node %s drifts by %+.1f ppm from that of node %s\n", p.Hops[i+1].name(), h.Drift, h.name()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// ids is an interface id, the short one if there are both.
func ids(short *uint16, wide *uint32) string {
	if short != nil {
		return fmt.Sprint(*short)
	}
	return text(wide, "%d")
}

// hopColumns are those of CSV: a row for each hop.
var hopColumns = []struct {
	name string
	text func(*Path, *Hop) string
}{
	{"id", func(p *Path, _ *Hop) string { return p.ID }},
	{"namespace", func(p *Path, _ *Hop) string { return fmt.Sprint(p.Namespace) }},
	{"trace_type", func(p *Path, _ *Hop) string { return p.TraceType }},
	{"src", func(p *Path, _ *Hop) string { return p.Source.String() }},
	{"dst", func(p *Path, _ *Hop) string { return p.Destination.String() }},
	{"packets", func(p *Path, _ *Hop) string { return fmt.Sprint(p.Packets) }},
	{"bytes", func(p *Path, _ *Hop) string { return fmt.Sprint(p.Bytes) }},
	{"first", func(p *Path, _ *Hop) string { return p.First.Format(csvTime) }},
	{"last", func(p *Path, _ *Hop) string { return p.Last.Format(csvTime) }},
	{"reached", func(p *Path, _ *Hop) string { return fmt.Sprint(p.Reached) }},
	{"hop", func(_ *Path, h *Hop) string { return fmt.Sprint(h.Hop) }},
	{"hop_limit", func(_ *Path, h *Hop) string { return value(h.HopLimit) }},
	{"node_id", func(_ *Path, h *Hop) string { return value(h.NodeID) }},
	{"ingress", func(_ *Path, h *Hop) string { return value(h.Ingress) }},
	{"egress", func(_ *Path, h *Hop) string { return value(h.Egress) }},
	{"node_id_wide", func(_ *Path, h *Hop) string { return value(h.NodeIDWide) }},
	{"ingress_wide", func(_ *Path, h *Hop) string { return value(h.IngressWide) }},
	{"egress_wide", func(_ *Path, h *Hop) string { return value(h.EgressWide) }},
	{"transit_count", func(_ *Path, h *Hop) string {
		return number64(h.Transit, func(t *Times) int64 { return int64(t.Count) })
	}},
	{"transit_mean_ns", func(_ *Path, h *Hop) string {
		return number64(h.Transit, func(t *Times) int64 { return int64(t.Mean) })
	}},
	{"transit_p50_ns", func(_ *Path, h *Hop) string { return number64(h.Transit, func(t *Times) int64 { return int64(t.P50) }) }},
	{"transit_p90_ns", func(_ *Path, h *Hop) string { return number64(h.Transit, func(t *Times) int64 { return int64(t.P90) }) }},
	{"link_count", func(_ *Path, h *Hop) string { return number64(h.Link, func(t *Times) int64 { return int64(t.Count) }) }},
	{"link_mean_ns", func(_ *Path, h *Hop) string { return number64(h.Link, func(t *Times) int64 { return int64(t.Mean) }) }},
	{"link_p50_ns", func(_ *Path, h *Hop) string { return number64(h.Link, func(t *Times) int64 { return int64(t.P50) }) }},
	{"link_p90_ns", func(_ *Path, h *Hop) string { return number64(h.Link, func(t *Times) int64 { return int64(t.P90) }) }},
	{"relative", func(_ *Path, h *Hop) string { return fmt.Sprint(h.Relative) }},
}

const csvTime = "2006-01-02T15:04:05.000000000Z"

func value[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func number64(t *Times, of func(*Times) int64) string {
	if t == nil {
		return ""
	}
	return fmt.Sprint(of(t))
}

func writeHopRows(w io.Writer, paths []Path) error {
	out := csv.NewWriter(w)
	var row []string
	for _, c := range hopColumns {
		row = append(row, c.name)
	}
	_ = out.Write(row) // Error reports it
	for i := range paths {
		for k := range paths[i].Hops {
			row = row[:0]
			for _, c := range hopColumns {
				row = append(row, c.text(&paths[i], &paths[i].Hops[k]))
			}
			_ = out.Write(row)
		}
	}
	out.Flush()
	return out.Error()
}
