// Package view shows answers of the API to people: which columns the rows of a
// merging have, and how an endpoint reads. waymark flows and top call it.
package view

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/term"
)

// Column is a column of a table of flows.
type Column struct {
	term.Column
	// Name is what JSON, CSV, --sort or the filter call the value; empty: the
	// column is made of several, or is of no value. The title is its last part,
	// except where that is too long (short).
	Name string
	cell func(Merging, *api.Row) string
	// shown reports whether a row has something to show; nil: always.
	shown func(*api.Row) bool

	// Where the terminal is narrow:
	brief       func(Merging, *api.Row) string // a shorter cell; nil: there is none
	enough      int                            // in which width a cell can be read; 0: only whole
	dispensable int                            // the highest are left out first; 0: never
}

// Merging is what rows were merged by.
type Merging struct {
	keys  []query.Key
	whole bool
	fold  query.Fold
	sort  string
	step  time.Duration
}

// NewMerging takes keys as the request named them.
func NewMerging(by query.By) Merging {
	return Merging{keys: by.Keys, whole: by.Whole(), fold: by.Fold}
}

// SortedBy is the merging with a column for what its rows are sorted by.
func (m Merging) SortedBy(name string) Merging {
	m.sort = name
	return m
}

// Stepped is the merging with a column for the steps of a series; 0: there are none.
func (m Merging) Stepped(step time.Duration) Merging {
	m.step = step
	return m
}

func (m Merging) has(name string) bool {
	return slices.ContainsFunc(m.keys, func(k query.Key) bool { return k.Name == name })
}

// Columns are the columns for rows. A column in which no row has anything is left
// out, unless its title is among keep: columns that were shown before.
func (m Merging) Columns(rows []api.Row, keep []string) []Column {
	columns := append(m.keyColumns(), sumColumns...)
	if c := keyColumns["host"]; m.whole && (severalHosts(rows) || slices.Contains(keep, c.Title)) {
		columns = slices.Insert(columns, 0, c)
	}
	return shownColumns(m.withSort(columns), rows, keep)
}

// severalHosts reports whether flows are of more than one, as an analyzer has them.
func severalHosts(rows []api.Row) bool {
	return slices.ContainsFunc(rows, func(w api.Row) bool { return w.Host != rows[0].Host })
}

// withSort adds the column of what rows are sorted by, where it is none of the others.
func (m Merging) withSort(columns []Column) []Column {
	f := flow.FieldNamed(m.sort)
	if f == nil || f.Merge == flow.MergeKey || slices.ContainsFunc(columns, func(c Column) bool { return flow.FieldNamed(c.Name) == f }) {
		return columns
	}
	return append(columns, fieldColumn(f))
}

func (m Merging) keyColumns() []Column {
	var columns []Column
	if m.step != 0 {
		columns = append(columns, stepColumn)
	}
	for _, k := range m.keys {
		// A port stands with its address.
		if k.Name == "sport" && m.has("src") || k.Name == "dport" && m.has("dst") {
			continue
		}
		c, ok := keyColumns[k.Name]
		if !ok {
			c = fieldColumn(flow.FieldNamed(k.Name))
		}
		if title, ok := foldTitles[m.fold][c.Title]; ok {
			c.Title = title
		}
		if !m.whole {
			c.shown = nil // what was asked for is shown
		}
		columns = append(columns, c)
	}
	return columns
}

// Table puts rows into columns.
func (m Merging) Table(columns []Column, rows []api.Row) *term.Table {
	t := &term.Table{}
	for _, c := range columns {
		t.Columns = append(t.Columns, c.Column)
	}
	for i := range rows {
		cells := make([]string, len(columns))
		for n, c := range columns {
			cells[n] = c.cell(m, &rows[i])
		}
		t.Add(cells...)
	}
	return t
}

// Titles are the titles of columns.
func Titles(columns []Column) []string {
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.Title
	}
	return titles
}

// Fixed is a column with the same text in every row.
func Fixed(title, text string) Column {
	return Column{Column: term.Column{Title: title}, cell: func(Merging, *api.Row) string { return text }}
}

// leastAddress is how far an address is shortened where the terminal is narrow,
// leastName a name.
const (
	leastAddress = 12
	leastName    = 6
)

// keyColumns are those of keys that are shown in a way of their own; the others have
// the column of any field.
var keyColumns = map[string]Column{
	"host": {
		Name:   "host",
		Column: term.Column{Title: "HOST", Least: leastName},
		cell:   func(_ Merging, w *api.Row) string { return w.Host },
	},
	"netns": {
		Name:   "netns",
		Column: term.Column{Title: "NETNS", Least: leastName},
		cell:   func(_ Merging, w *api.Row) string { return w.Netns },
		shown:  func(w *api.Row) bool { return w.Netns != "" },
	},
	"iface": {
		Name:   "iface",
		Column: term.Column{Title: "IFACE", Least: leastName},
		cell:   func(_ Merging, w *api.Row) string { return w.Iface },
	},
	"in": {
		Name:   "in",
		Column: term.Column{Title: "IN", Least: leastName},
		cell:   func(_ Merging, w *api.Row) string { return Passage(w.In) },
	},
	"out": {
		Name:   "out",
		Column: term.Column{Title: "OUT", Least: leastName},
		cell:   func(_ Merging, w *api.Row) string { return Passage(w.Out) },
	},
	"direction": {
		Name:   "direction",
		Column: term.Column{Title: "DIR"},
		cell:   func(_ Merging, w *api.Row) string { return Direction(w.Direction) },
	},
	"family": {
		Name:   "family",
		Column: term.Column{Title: "FAMILY"},
		cell:   func(_ Merging, w *api.Row) string { return "IPv" + strconv.Itoa(int(w.Family)) },
	},
	"src": {
		Name:   "src",
		Column: term.Column{Title: "SRC", Least: leastAddress},
		cell:   Merging.source,
	},
	"sport": {
		Name:   "sport",
		Column: term.Column{Title: "SPORT", Right: true},
		cell:   func(_ Merging, w *api.Row) string { return sourcePort(w) },
	},
	"dst": {
		Name:   "dst",
		Column: term.Column{Title: "DST", Least: leastAddress},
		cell:   Merging.destination,
	},
	"dport": {
		Name:   "dport",
		Column: term.Column{Title: "DPORT", Right: true},
		cell:   func(_ Merging, w *api.Row) string { return port(w, w.DstPort) },
	},
	"tos": {
		Name:   "tos",
		Column: term.Column{Title: "TOS"},
		cell:   func(_ Merging, w *api.Row) string { return "0x" + strconv.FormatUint(uint64(w.TOS), 16) },
	},
}

// stepColumn is the begin of a step.
var stepColumn = Column{
	Name:   "time",
	Column: term.Column{Title: "TIME"},
	cell:   func(_ Merging, w *api.Row) string { return w.Time.Local().Format(time.DateTime) },
	brief:  func(_ Merging, w *api.Row) string { return w.Time.Local().Format(time.TimeOnly) },
}

// Passage is an interface on which a flow came in or left; - for this host.
func Passage(name string) string {
	if name == "" {
		return "-"
	}
	return name
}

// sumColumns stand behind the keys. Where the terminal is narrow they make room for
// these: a shortened address may be that of another row.
var sumColumns = []Column{
	sum("packets", func(w *api.Row) string { return term.Count(w.Packets) }, nil).unless(2),
	sum("bytes", func(w *api.Row) string { return term.Count(w.Bytes) }, nil),
	titled("FWD", func(w *api.Row) string { return term.Count(w.Bytes - w.Back.Bytes) }, folded).unless(4),
	titled("REV", func(w *api.Row) string { return term.Count(w.Back.Bytes) }, folded).unless(4),
	sum("rate", func(w *api.Row) string { return term.Rate(float64(w.Bytes)*8, w.Lasted()) }, nil).unless(5),
	sum("rtt", func(w *api.Row) string { return term.Duration(w.RTT.Handshake()) },
		func(w *api.Row) bool { return w.RTT.Handshake() > 0 }).unless(3),
	rare("drops.packets").unless(1),
	rare("drops.by").unless(1),
	delaySum("server", serverOf).unless(1), // waymark delays shows them
	delaySum("network", networkOf).unless(1),
	rare("ioam.path").unless(1), // waymark paths shows it
	rare("ioam.lost").unless(1),
	rare("ioam.delay.mean_ns").unless(1),
}

// rare is the column of a field that few records have.
func rare(name string) Column {
	f := flow.FieldNamed(name)
	c := fieldColumn(f)
	c.shown = func(w *api.Row) bool { return !f.Absent(nil, &w.Record) }
	return c
}

// delaySum is a median that few flows have.
func delaySum(name string, of func(*flow.PDM) *flow.Delays) Column {
	c := quantile(name, of, 0.5)
	c.shown = func(w *api.Row) bool { return w.PDM != nil && of(w.PDM).Count > 0 }
	return c
}

func folded(w *api.Row) bool { return w.Back.Packets > 0 }

// sum is a column of the value with that name, titled by the name.
func sum(name string, cell func(*api.Row) string, shown func(*api.Row) bool) Column {
	c := titled(title(name), cell, shown)
	c.Name = name
	return c
}

func titled(title string, cell func(*api.Row) string, shown func(*api.Row) bool) Column {
	return Column{
		Column: term.Column{Title: title, Right: true},
		cell:   func(_ Merging, w *api.Row) string { return cell(w) }, shown: shown,
	}
}

// title is that of a field's column: its own, or the last part of its name.
func title(name string) string {
	if f := flow.FieldNamed(name); f != nil {
		if f.Title != "" {
			return f.Title
		}
		name = f.Short()
	}
	return strings.ToUpper(name[strings.LastIndexByte(name, '.')+1:])
}

// fieldColumn is a column of any field.
func fieldColumn(f *flow.Field) Column {
	c := sum(f.Name, func(w *api.Row) string { return fieldText(f, w) }, nil)
	switch f.Kind {
	case flow.Text, flow.Name, flow.Protocol, flow.Bits:
		c.Right = false
	}
	if f.Merge == flow.MergeKey && f.Uint != nil {
		c.shown = func(w *api.Row) bool { return f.Uint(&w.Record) != 0 }
	}
	return c
}

// fieldText is the value of a field for people.
func fieldText(f *flow.Field, w *api.Row) string {
	r := &w.Record
	switch {
	case f.Missing != nil && f.Missing(r):
		return "-"
	case f.Kind == flow.Protocol:
		return flow.ProtoName(r.Proto)
	case f.Kind == flow.Bits:
		return flow.TCPFlagNames(r.TCPFlags)
	case f.Duration():
		return term.Duration(time.Duration(f.Uint(r)))
	case f.Kind == flow.Time:
		if f.Name == "first" {
			return r.First.Local().Format(time.TimeOnly)
		}
		return r.Last.Local().Format(time.TimeOnly)
	case f.Kind == flow.Number && f.Unit != "":
		return term.Count(f.Uint(r))
	case f.Kind == flow.Number && f.Merge == flow.MergeKey && f.Uint(r) == 0:
		return "-"
	}
	return string(f.Append(nil, &flow.Origin{}, r))
}
