package api

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// Answer is what the agent knows about flows. When following, there is one for
// each interval, one a line.
type Answer struct {
	Host      string        `json:"host"`
	Sampling  uint32        `json:"sampling"` // one packet in so many was counted
	From      time.Time     `json:"from,omitzero"`
	To        time.Time     `json:"to,omitzero"` // absent: no interval has ended yet
	Intervals int           `json:"intervals"`
	By        []string      `json:"by"`
	Groups    int           `json:"groups"`   // rows before the limit
	Records   uint64        `json:"records"`  // that match
	Total     flow.Counters `json:"total"`    // of all packets that match, each counted once unless asked for everywhere
	Repeated  flow.Counters `json:"repeated"` // what was seen again on a further interface, or at a further host
	Summed    uint64        `json:"summed"`   // records too many to keep, now in unattributed rows
	Missed    uint64        `json:"missed"`   // intervals that this follower was too late for
	// Since is what was asked for. Incomplete is why the rows cover less: "history",
	// older intervals had to leave (api.history); "started", the agent runs only
	// since then. Absent: they cover it.
	Since      time.Time   `json:"since,omitzero"`
	Incomplete query.Short `json:"incomplete,omitempty"`
	Until      time.Time   `json:"until,omitzero"`    // what was asked for
	Oldest     time.Time   `json:"oldest,omitzero"`   // where there is nothing of the time that was asked for: the begin of the oldest records
	Step       string      `json:"step,omitempty"`    // likewise
	Lost       uint64      `json:"lost,omitempty"`    // intervals that the history could not keep, or cannot read
	Partial    string      `json:"partial,omitempty"` // why some records are not in the answer; absent: all are
	// SharedFlows are flows that several hosts saw: each counts at the one that is nearest to its source. Of UnsureFlows, counts
	// or clocks decided which one that is. Of BehindFlows, a further host counted over a sixteenth more packets: the nearest one was not
	// counting all the time, or packets were duplicated. EachHost is why packets count at each host that saw them instead.
	SharedFlows uint64 `json:"shared_flows,omitempty"`
	UnsureFlows uint64 `json:"unsure_flows,omitempty"`
	BehindFlows uint64 `json:"behind_flows,omitempty"`
	EachHost    string `json:"each_host,omitempty"`
	Whole       []Row  `json:"whole,omitempty"` // with step and limit: the groups over all the time, in the order of rows
	Rows        []Row  `json:"rows"`
}

// Row is a row of the store with its JSON. Rows by flow are flow records as the
// exporters write them, with records added; other rows have their keys and sums.
type Row struct {
	query.Row
	JSON json.RawMessage
}

// NewAnswer puts an answer of the store into the form of the API.
func NewAnswer(a query.Answer, o flow.Origin) Answer {
	out := Answer{
		Host: o.Host, Sampling: max(o.Sampling, 1),
		From: a.From, To: a.To, Intervals: a.Intervals, Groups: a.Groups, Records: a.Records,
		Total: a.Total, Repeated: a.Repeated, Summed: a.Summed, Missed: a.Missed,
		Since: a.Asked, Until: a.AskedUntil, Incomplete: a.Short, Lost: a.Lost, Partial: a.Partial,
		SharedFlows: a.Shared, UnsureFlows: a.Unsure, BehindFlows: a.Behind, EachHost: a.EachHost,
	}
	if a.Intervals == 0 {
		out.Oldest = a.Oldest
	}
	if a.Step != 0 {
		out.Step = a.Step.String()
	}
	for _, k := range a.By {
		out.By = append(out.By, k.String())
	}
	out.Whole, out.Rows = newRows(a.By, 0, &o, a.Whole), newRows(a.By, a.Step, &o, a.Rows)
	return out
}

func newRows(by []query.Key, step time.Duration, o *flow.Origin, rows []query.Row) []Row {
	list := make([]Row, len(rows))
	fields := RowFields(by, step)
	for i := range rows {
		list[i] = Row{rows[i], appendRow(nil, fields, o, &rows[i])}
	}
	return list
}

// Warning says in a line that the rows cover less time than asked; empty: they
// do not.
func (a *Answer) Warning() string {
	why := ""
	switch a.Incomplete {
	case "":
		return ""
	case query.ShortHistory:
		why = "older intervals made room for newer ones; api.history sets how many records are kept"
	case query.ShortStarted:
		why = "the agent has counted since then"
	default:
		why = string(a.Incomplete)
	}
	if !a.Until.IsZero() && a.Until.Before(a.Oldest) {
		return fmt.Sprintf("there are no records of that time: the oldest record is of %s; ask for a later time", a.Oldest.Local().Format(time.DateTime))
	}
	if a.To.IsZero() {
		return "" // there is nothing yet that could be incomplete
	}
	return fmt.Sprintf("the history covers %s only, from %s on: %s",
		a.To.Sub(a.From).Round(time.Second), a.From.Local().Format(time.DateTime), why)
}

// Warnings are lines that say what the rows do not cover, and why packets count at several hosts.
func (a *Answer) Warnings() (list []string) {
	if text := a.Warning(); text != "" {
		list = append(list, text)
	}
	if a.Partial != "" {
		list = append(list, "the answer is partial: "+a.Partial)
	}
	if a.Lost > 0 {
		list = append(list, fmt.Sprintf("%d scan intervals of that time are missing: the history could not keep or read them", a.Lost))
	}
	if a.EachHost != "" {
		list = append(list, a.EachHost)
	}
	return list
}

// MarshalJSON implements json.Marshaler.
func (w Row) MarshalJSON() ([]byte, error) { return w.JSON, nil }

// UnmarshalJSON implements json.Unmarshaler.
func (w *Row) UnmarshalJSON(data []byte) error {
	w.JSON = append(w.JSON[:0], data...)
	if err := decodeRow(data, &w.Row); err != nil {
		return fmt.Errorf("row of flows: %w", err)
	}
	return nil
}
