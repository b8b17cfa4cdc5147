// Package clickhouse answers plans from the records that the exporter of the same name stored. Input: plans. Output: groups, which
// the executor merges with those of memory and disk. Callers: the agent.
//
// The server filters, folds and sums, by SQL that is made of the plan, with values as parameters (sql.go). What rows keep of records that
// agree is a key there, so that this process decides on agreement, means and quantiles by the same code as for other engines.
// Plans about where packets were seen first, or about whole flows, read records instead (records.go).
package clickhouse

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/export/clickhouse"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// Source is a server.
type Source struct {
	Client *clickhouse.Client
	Tables clickhouse.Tables
	Host   string // whose records are asked for
}

// Far implements query.Far.
func (s *Source) Far() bool { return true }

// spanTime is how long the server may take to say what it has.
const spanTime = 3 * time.Second

// engine is what the server has at one moment.
type engine struct {
	*Source
	span query.Span
	err  error // why it is not known
}

// Open implements query.Source. A server that does not answer has nothing, and the answer is partial.
func (s *Source) Open() query.Engine {
	e := &engine{Source: s}
	ctx, cancel := context.WithTimeout(context.Background(), spanTime)
	defer cancel()
	q := s.statement()
	q.text = "SELECT min(sequence), max(sequence), toUnixTimestamp64Nano(min(time)) FROM " + s.Tables.Intervals() + " WHERE host = " + q.param(s.Host)
	e.err = q.rows(ctx, func(r *reader) {
		e.span.First, e.span.Last = r.word(), r.word()
		if at := int64(r.word()); e.span.First > 0 {
			e.span.Oldest = flow.FromNanos(at)
			e.span.Began = e.span.Oldest
		}
	})
	return e
}

// Close implements query.Engine.
func (e *engine) Close() {}

// Name implements query.Engine.
func (e *engine) Name() string { return "clickhouse" }

// Span implements query.Engine.
func (e *engine) Span() query.Span { return e.span }

// Explain implements query.Engine. Bytes are those of the server's business.
func (e *engine) Explain(p *query.Plan, before uint64) (c query.Cost) {
	ctx, cancel := context.WithTimeout(context.Background(), spanTime)
	defer cancel()
	heads, err := e.heads(ctx, p, before, false)
	if err != nil {
		return c
	}
	for i := range heads {
		c.Intervals++
		c.Records += uint64(heads[i].Rows)
	}
	return c
}

// Run implements query.Engine.
func (e *engine) Run(ctx context.Context, p *query.Plan, before uint64) (query.Groups, error) {
	g := query.NewGrouping(p)
	groups := query.NewAccumulator(p, g)
	var report query.Report
	err := e.err
	if err == nil {
		err = e.run(ctx, p, before, g, groups, &report)
	}
	if err != nil {
		report.Partial = "ClickHouse does not answer: " + err.Error()
		if ctx.Err() != nil {
			report.Partial = fmt.Sprintf("the time of the query (%v) ended: ask for less time, filter by address, or allow more with timeout", p.Budget.Time)
		}
	}
	return groups.Groups(report), nil
}

func (e *engine) run(ctx context.Context, p *query.Plan, before uint64, g *query.Grouping, groups *query.Accumulator, report *query.Report) error {
	joins := g.Joins(p)
	heads, err := e.heads(ctx, p, before, joins)
	if err != nil {
		return err
	}
	asked := heads[:0:0]
	for _, h := range heads {
		if p.Meant(h.Sequence, h.From, h.To) {
			asked = append(asked, h)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	if joins || p.By.Whole() || !p.By.Counted() {
		err = e.records(ctx, p, g, heads, groups)
	} else {
		err = e.sums(ctx, p, g, asked, groups)
	}
	if err != nil {
		return err
	}
	last := uint64(0)
	for i := range asked {
		h := &asked[i]
		if report.From.IsZero() || h.From.Before(report.From) {
			report.From = h.From
		}
		if h.To.After(report.To) {
			report.To = h.To
		}
		if last > 0 {
			report.Lost += h.Sequence - last - 1
		}
		last = h.Sequence
		report.Intervals++
		report.Summed += h.Summed
	}
	return nil
}

// heads are the intervals that are asked for. With those in front of them, in which packets may have been seen first, they have their
// wiring, too.
func (e *engine) heads(ctx context.Context, p *query.Plan, before uint64, leading bool) (heads []store.Head, err error) {
	q := e.statement()
	wiring, early := "''", time.Duration(0)
	if leading {
		wiring, early = "wiring", 24*time.Hour // an interval is shorter
	}
	q.text = "SELECT sequence, toUnixTimestamp64Nano(time), toUnixTimestamp64Nano(until), summed, rows, " + wiring + " FROM " + e.Tables.Intervals() +
		" WHERE host = " + q.param(e.Host) + " AND sequence < " + q.param(before)
	if !p.Since.IsZero() {
		q.text += " AND until > " + q.time(p.Since.Add(-early))
	}
	if !p.Until.IsZero() {
		q.text += " AND time < " + q.time(p.Until)
	}
	q.text += " ORDER BY sequence LIMIT 1 BY sequence"
	var bad error
	err = q.rows(ctx, func(r *reader) {
		h := store.Head{Sequence: r.word(), From: flow.FromNanos(int64(r.word())), To: flow.FromNanos(int64(r.word())), Summed: r.word(), Rows: int(r.word())}
		if text := string(r.bytes()); text != "" {
			b, err := base64.StdEncoding.DecodeString(text)
			if err == nil {
				h.Wiring, err = store.DecodeWiring(b)
			}
			if err != nil {
				bad = fmt.Errorf("wiring of interval %d: %w", h.Sequence, err)
			}
		}
		switch n := len(heads); {
		case p.Meant(h.Sequence, h.From, h.To):
			heads = append(heads, h)
		case leading && n > 0 && !p.Meant(heads[n-1].Sequence, heads[n-1].From, heads[n-1].To):
			heads[n-1] = h // none of those in front of it is needed
		case leading:
			heads = append(heads, h)
		}
	})
	if err == nil {
		err = bad
	}
	return heads, err
}

// statement is a query with its parameters.
type statement struct {
	client   *clickhouse.Client
	text     string
	settings url.Values
	n        int
}

func (s *Source) statement() *statement {
	return &statement{client: s.Client, settings: url.Values{"readonly": {"2"}}}
}

// param has a value be a parameter, and returns its name with its type.
func (q *statement) param(v any) string {
	switch v := v.(type) {
	case string:
		return q.typed(v, "String")
	case []byte:
		return q.typed(address(v), "IPv6")
	case uint64:
		return q.typed(strconv.FormatUint(v, 10), "UInt64")
	}
	return q.typed(fmt.Sprint(v), "Int64")
}

// time is one.
func (q *statement) time(t time.Time) string {
	return q.typed(t.UTC().Format("2006-01-02 15:04:05.000000000"), "DateTime64(9, 'UTC')")
}

// escaped is how the server reads values of parameters: as fields of a line with tabs.
var escaped = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`, "\x00", `\0`, "\b", `\b`, "\f", `\f`)

func (q *statement) typed(value, kind string) string {
	q.n++
	name := "p" + strconv.Itoa(q.n)
	q.settings.Set("param_"+name, escaped.Replace(value))
	return "{" + name + ":" + kind + "}"
}

// rows calls each at the begin of each row of the answer.
func (q *statement) rows(ctx context.Context, each func(*reader)) error {
	body, err := q.client.Select(ctx, q.text+" FORMAT RowBinary", q.settings)
	if err != nil {
		return err
	}
	defer body.Close()
	r := &reader{from: bufio.NewReaderSize(body, 64<<10)}
	for r.more() {
		each(r)
	}
	return r.err
}
