package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store/disk"
	"github.com/waymark-net/waymark/test/duckdb"
)

// historyQuestion is a plan, and what is asked of DuckDB: of both the best form that is known here.
type historyQuestion struct {
	name, by, filter string
	hours            int // the last ones; 0: all
	step             time.Duration
	limit            float64 // ms; 0: none
	sql              string  // FILES are the files
	args             []any
}

// prefixes are the ten with the most bytes: addresses are grouped first, which is faster.
const (
	prefixOf = "array_slice(dst, 1, CASE WHEN family = 4 THEN 15 ELSE 6 END)"
	prefixes = "SELECT sum(b)::UBIGINT b, family f, " + prefixOf + " p FROM (SELECT family, dst, sum(bytes) b FROM FILES GROUP BY ALL) GROUP BY f, p ORDER BY b DESC LIMIT 10"
	bytesOf  = "SELECT b FROM (" + prefixes + ")"
)

var historyQuestions = []historyQuestion{
	{name: "top 10 prefixes of an hour", by: "dst/24/48", hours: 1, limit: 25, sql: strings.Replace(bytesOf, "FILES", "FILES WHERE interval > 8280", 1)},
	{name: "top 10 prefixes of 24 hours", by: "dst/24/48", limit: 350, sql: bytesOf},
	{
		name: "the same, as a series of minutes", by: "dst/24/48", step: time.Minute, limit: 700,
		sql: "WITH first AS (" + prefixes + ") SELECT sum(bytes)::UBIGINT FROM FILES x JOIN first ON x.family = f AND " +
			strings.ReplaceAll(strings.ReplaceAll(prefixOf, "dst", "x.dst"), "family", "x.family") + " = p GROUP BY f, p, (interval - 1) // 6 ORDER BY max(b) DESC, min(interval)",
	},
	{name: "top 10 prefixes of a service, 24 hours", by: "dst/24/48", filter: "tcp and dport 22", sql: strings.Replace(bytesOf, "FILES", "FILES WHERE proto = 6 AND dport = 22", 1)},
	{
		name: "one address, 24 hours", by: "dst,dport", filter: "host 10.0.0.77", limit: 100,
		sql:  "SELECT sum(bytes)::UBIGINT b FROM FILES WHERE family = 4 AND (src = $1 OR dst = $1) GROUP BY dst, dport ORDER BY b DESC LIMIT 10",
		args: []any{[]byte{10: 0xff, 0xff, 10, 0, 0, 77}},
	},
}

// ask takes the time of the plans.
func (r *HistoryReport) ask(ctx context.Context, cfg Config, s *disk.Store) error {
	for _, q := range historyQuestions {
		cfg.Progress(q.name)
		by, err := query.ParseBy(q.by)
		if err != nil {
			return err
		}
		f, err := filter.Parse(q.filter)
		if err != nil {
			return err
		}
		p := query.Plan{By: by, Filter: f, Step: q.step, Limit: 10, Sums: []string{"bytes"}}
		if q.hours > 0 {
			p.Since = historyBegin.Add(24*time.Hour - time.Duration(q.hours)*time.Hour)
		}
		x := query.Executor{Sources: []query.Source{s}}
		var times []float64
		var a query.Answer
		for range 5 {
			began := time.Now()
			if a, err = x.Answer(ctx, p); err != nil {
				return err
			}
			if a.Partial != "" {
				return errors.New(q.name + ": " + a.Partial)
			}
			times = append(times, float64(time.Since(began).Microseconds())/1e3)
		}
		r.Queries = append(r.Queries, HistoryQuery{Name: q.name, Groups: a.Groups, Records: a.Records, Milliseconds: spreadOf(times)})
		r.answers = append(r.answers, a)
	}
	return nil
}

// compare has DuckDB answer the same over the files, and compares the sums.
func (r *HistoryReport) compare(ctx context.Context, cfg Config, dir string) (err error) {
	if r.DuckDB, err = duckdb.Version(ctx); err != nil {
		return nil // the report says so
	}
	cfg.Progress("DuckDB " + r.DuckDB)
	files := "read_parquet('" + filepath.Join(dir, "*.parquet") + "')"
	var queries []duckdb.Query
	for _, q := range historyQuestions {
		queries = append(queries, duckdb.Query{SQL: strings.ReplaceAll(q.sql, "FILES", files), Args: q.args, Times: 5})
	}
	results, err := duckdb.Ask(ctx, queries)
	if err != nil {
		return err
	}
	for i, res := range results {
		r.Queries[i].DuckDB = spreadOf(res.Milliseconds)
		rows := r.answers[i].Rows
		if len(rows) != len(res.Rows) {
			return fmt.Errorf("%s: %d rows, DuckDB has %d", r.Queries[i].Name, len(rows), len(res.Rows))
		}
		for n := range rows {
			if got := strconv.FormatUint(rows[n].Bytes, 10); got != res.Rows[n][0].String() {
				return fmt.Errorf("%s: row %d has %s bytes, DuckDB says %s", r.Queries[i].Name, n, got, res.Rows[n][0])
			}
		}
	}
	return nil
}
