package disk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/test/duckdb"
	"github.com/waymark-net/waymark/test/soak"
)

// duckdbPlans is how many plans DuckDB answers, too.
var duckdbPlans = soak.Times(300, 2000)

// TestDuckDBAgrees: DuckDB finds by the SQL that a filter compiles to, over the files, what the history finds: the
// records, their sums, and the groups.
func TestDuckDBAgrees(t *testing.T) {
	if _, err := duckdb.Version(t.Context()); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	b := newBoth(t, dir)
	records := rapid.Custom(drawRecords)
	for n := range 12 {
		b.fill(n, records.Example(n)...)
		if n%5 == 4 || n == 11 {
			if err := b.disk.Seal(); err != nil {
				t.Fatal(err)
			}
		}
	}
	defer b.disk.close()
	files := "read_parquet('" + filepath.Join(dir, "*.parquet") + "', union_by_name = true)"
	random := rand.New(rand.NewPCG(1, 2))
	var queries []duckdb.Query
	var want []string
	matches := 0
	for len(queries) < duckdbPlans {
		p, sql := duckdbPlan(t, random, files)
		a := ask(t, p, b.disk)
		if a.Records > 0 {
			matches++
		}
		rows := []string{}
		for _, w := range a.Rows {
			rows = append(rows, fmt.Sprint(w.Records, w.Packets, w.Bytes))
		}
		slices.Sort(rows)
		queries, want = append(queries, sql), append(want, strings.Join(rows, ", "))
	}
	results, err := duckdb.Ask(context.Background(), queries)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		rows := []string{}
		for _, row := range r.Rows {
			rows = append(rows, fmt.Sprintf("%s %s %s", row[0], row[1], row[2]))
		}
		slices.Sort(rows)
		if got := strings.Join(rows, ", "); got != want[i] {
			t.Fatalf("%s\n%v\nDuckDB finds %s\nwant         %s", queries[i].SQL, queries[i].Args, got, want[i])
		}
	}
	if matches < duckdbPlans/4 {
		t.Errorf("%d of %d plans find records: this tests little", matches, duckdbPlans)
	}
}

// duckdbKeys are keys with their SQL.
var duckdbKeys = []struct{ by, sql string }{
	{"proto", "proto"},
	{"dport", "dport, unattributed"},
	{"iface,direction", "iface, direction"},
	{"src/24/64", prefixSQL("src", "15", "8")},
	{"dst/16/32,dport", prefixSQL("dst", "14", "4") + ", dport"},
	{"vlan,tos", "vlan, tos"},
	{"family", "family"},
	{"netns", "netns"},
}

func prefixSQL(column, bytes4, bytes6 string) string {
	return "unattributed, family, array_slice(" + column + ", 1, CASE WHEN family = 4 THEN " + bytes4 + " ELSE " + bytes6 + " END)"
}

// duckdbPlan is a random plan, and the same in SQL: a filter of two of those that others use, or of a few.
func duckdbPlan(t *testing.T, random *rand.Rand, files string) (query.Plan, duckdb.Query) {
	for {
		parts := []string{filters[random.IntN(len(filters))], filters[random.IntN(len(filters))]}
		text := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), [...]string{") or (", ") and ("}[random.IntN(2)])
		if text != "" {
			text = [...]string{"(", "not ("}[random.IntN(2)] + text + ")"
		}
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		key := duckdbKeys[random.IntN(len(duckdbKeys))]
		by, err := query.ParseBy(key.by)
		if err != nil {
			t.Fatal(err)
		}
		p := query.Plan{By: by, Filter: f, Everywhere: true}
		if _, rows, err := f.Split(by.Whole()); err != nil || !rows.Empty() {
			continue // it tests sums of rows
		}
		if random.IntN(2) == 0 {
			p.Sums = []string{"packets", "bytes"}
		}
		where := f.SQL(filter.DuckDB)
		first := uint64(1 + random.IntN(12))
		p.Since = at(int(first)) // of the ends of intervals
		sql := fmt.Sprintf("SELECT count(*), sum(packets)::UBIGINT, sum(bytes)::UBIGINT FROM %s WHERE interval > %d AND %s GROUP BY %s", files, first, where.Where, key.sql)
		return p, duckdb.Query{SQL: sql, Args: where.Args}
	}
}
