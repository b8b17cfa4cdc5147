package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/stage/list"
	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/internal/view"
)

// aView is one way to merge what is seen, with its columns.
type aView struct {
	name    string
	rows    string // what a row is
	by      string
	columns []column
	filter  string  // in addition to the user's; empty: none
	sorts   []order // instead of those of all
	// empty says why there may be no rows; nil: there is nothing to say.
	empty func(*obs.Status) string
}

// order is one that the key s goes through.
type order struct{ name, title string }

// column of a view. One that may grow takes the room that is left.
type column struct {
	title string
	width int // 0: as wide as its cells, and shortened if it does not fit
	right bool
	cell  func(line) string
	// onlyMany leaves the column out unless its cells differ.
	onlyMany bool
}

// line is what a row shows: the row, its past, and the time it was counted in.
type line struct {
	row   *api.Row
	past  *trend
	taken time.Duration
}

func (l line) bits(bytes uint64) string { return term.Rate(float64(bytes)*8, l.taken) }

var (
	ifaceColumn = column{
		title: "IFACE", onlyMany: true,
		cell: func(l line) string { return strings.TrimPrefix(l.row.Netns+"/"+l.row.Iface, "/") },
	}
	protoColumn  = column{title: "PROTO", width: 6, cell: func(l line) string { return flow.ProtoName(l.row.Proto) }}
	rateColumn   = column{title: "BIT/S", width: 6, right: true, cell: func(l line) string { return l.bits(l.row.Bytes) }}
	forthColumn  = column{title: "BIT/S→", width: 6, right: true, cell: func(l line) string { return l.bits(l.row.Bytes - l.row.Back.Bytes) }}
	backColumn   = column{title: "←BIT/S", width: 6, right: true, cell: func(l line) string { return l.bits(l.row.Back.Bytes) }}
	packetColumn = column{
		title: "PKT/S", width: 5, right: true,
		cell: func(l line) string { return term.Rate(float64(l.row.Packets), l.taken) },
	}
	rttColumn = column{title: "RTT", width: 6, right: true, cell: func(l line) string { return term.Duration(l.past.rtt) }}
)

// views, in the order of their keys 1, 2, …
var views = []aView{
	{
		name: "conversations", rows: "conversations", by: "conversation",
		columns: []column{
			protoColumn,
			{title: "CLIENT", cell: func(l line) string { return view.Source(l.row) }},
			{title: "SERVER", cell: func(l line) string { return view.Destination(l.row) }},
			forthColumn, backColumn, rttColumn,
		},
	},
	{
		name: "flows", rows: "flows", by: "transit",
		columns: []column{
			{title: "IN", cell: func(l line) string { return view.Passage(l.row.In) }},
			{title: "OUT", cell: func(l line) string { return view.Passage(l.row.Out) }},
			protoColumn,
			{title: "SOURCE", cell: func(l line) string { return view.Source(l.row) }},
			{title: "DESTINATION", cell: func(l line) string { return view.Destination(l.row) }},
			rateColumn, packetColumn,
		},
	},
	{
		name: "hosts", rows: "host pairs", by: "pair",
		columns: []column{
			{title: "HOST", cell: func(l line) string { return view.Host(l.row, l.row.SrcPrefix) }},
			{title: "HOST", cell: func(l line) string { return view.Host(l.row, l.row.DstPrefix) }},
			forthColumn, backColumn, packetColumn, rttColumn,
		},
	},
	{
		name: "services", rows: "services", by: "service",
		columns: []column{
			protoColumn,
			{title: "PORT", right: true, cell: func(l line) string { return view.Port(l.row, l.row.DstPort) }},
			forthColumn, backColumn, packetColumn, rttColumn,
			{title: "FLOWS", width: 5, right: true, cell: func(l line) string { return term.Count(l.row.Records) }},
		},
	},
	{
		name: "interfaces", rows: "interfaces", by: "netns,iface,direction",
		columns: []column{
			{title: "NETNS", onlyMany: true, cell: func(l line) string { return l.row.Netns }},
			{title: "IFACE", cell: func(l line) string { return l.row.Iface }},
			{title: "DIR", width: 3, cell: func(l line) string { return view.Direction(l.row.Direction) }},
			rateColumn, packetColumn, rttColumn,
			{title: "FLOWS", width: 5, right: true, cell: func(l line) string { return term.Count(l.row.Records) }},
		},
	},
	{
		name: "delays", rows: "peers", by: delaysBy, filter: "pdm",
		columns: []column{
			ifaceColumn, protoColumn,
			{title: "PEER", cell: func(l line) string { return view.Source(l.row) }},
			delayColumn("SERVER", func(p *flow.PDM) *flow.Delays { return &p.Server }),
			delayColumn("NETWORK", func(p *flow.PDM) *flow.Delays { return &p.Network }),
			{title: "LOSS", width: 6, right: true, cell: ofPDM(view.LossText)},
			{title: "VERDICT", cell: func(l line) string { return delaysMerging.Verdict(l.row) }},
		},
		sorts: []order{{"delay", "delay"}, {"server", "server"}, {"network", "network"}, {"lost", "lost"}, {"bytes", "rate"}},
		empty: func(s *obs.Status) string {
			for _, k := range list.Kinds() {
				if k.Off != "" && !s.Has(k.Name) {
					return k.Off
				}
			}
			return "no marked flow in this interval"
		},
	},
}

// delaysBy are peers by protocol and port; sources are peers.
const delaysBy = "netns,iface,proto,peer,peer_port"

var delaysMerging = func() view.Merging {
	by, err := query.ParseBy(delaysBy)
	if err != nil {
		panic("top: " + err.Error())
	}
	return view.NewMerging(by)
}()

func delayColumn(title string, of func(*flow.PDM) *flow.Delays) column {
	return column{title: title, width: max(6, len(title)), right: true, cell: ofPDM(func(p *flow.PDM) string { return view.Delay(of(p), 0.5) })}
}

func ofPDM(text func(*flow.PDM) string) func(line) string {
	return func(l line) string {
		if l.row.PDM == nil {
			return "-"
		}
		return text(l.row.PDM)
	}
}

// ViewNames lists what Config.View may be.
func ViewNames() []string {
	names := make([]string, len(views))
	for i := range views {
		names[i] = views[i].name
	}
	return names
}

func viewNamed(name string) (int, error) {
	for i := range views {
		if views[i].name == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("unknown view %s: the views are %s", strconv.Quote(name), strings.Join(ViewNames(), ", "))
}

// sorts are the orders of all views without their own.
var sorts = []order{{"bytes", "rate"}, {"packets", "packets"}, {"rtt", "round trip"}}
