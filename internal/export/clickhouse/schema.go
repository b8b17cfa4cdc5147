package clickhouse

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// Tables names where records are.
type Tables struct {
	Database string
	Flows    string // its records; further tables have names that begin so
}

// DefaultTables are those of a configuration without names.
func DefaultTables() Tables { return Tables{"waymark", "flows"} }

// Records is the table of records.
func (t Tables) Records() string { return t.Database + "." + t.Flows }

// Intervals is the table with a row for each interval whose records are complete.
func (t Tables) Intervals() string { return t.Records() + "_intervals" }

// Check refuses names that would need quotes.
func (t Tables) Check() error {
	for _, name := range []string{t.Database, t.Flows} {
		if !identifier(name) {
			return fmt.Errorf("%q is not a name of a database or table: write letters, digits and underscores, and begin with a letter", name)
		}
	}
	return nil
}

func identifier(s string) bool {
	letter := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
	other := func(c rune) bool { return !letter(c) && (c < '0' || c > '9') }
	return s != "" && letter(rune(s[0])) && strings.IndexFunc(s, other) < 0
}

// Schema says what tables are like.
type Schema struct {
	Tables
	Monthly bool          // partitions of a month; else of a day
	Keep    time.Duration // age at which records leave; 0: never. Roll-ups stay ten times as long
	Window  int           // inserts that a table remembers, so that one that is sent twice is stored once
}

// DefaultSchema suits some dozen agents.
func DefaultSchema() Schema {
	return Schema{Tables: DefaultTables(), Keep: 30 * 24 * time.Hour, Window: 10000}
}

// rollUps are the tables of sums.
var rollUps = []struct{ suffix, start, title string }{
	{"_1m", "toStartOfMinute", "minute"},
	{"_1h", "toStartOfHour", "hour"},
}

// longer is how much longer roll-ups stay.
const longer = 10

// forever is an age that records do not reach: ClickHouse's DateTime ends in 2106, and starts again.
const forever = 60 * 365 * 24 * time.Hour

// column is a column of a table that is created.
type column struct{ name, kind, codec, comment string }

// Statements create the database and its tables, one statement each. They change nothing that is there.
func (s Schema) Statements() []string {
	list := []string{"CREATE DATABASE IF NOT EXISTS " + s.Database, s.create(s.Records(), recordColumns(), "(toStartOfMinute(time), host, iface)", s.Keep)}
	list = append(list, s.create(s.Intervals(), intervalColumns, "(host, sequence)", longer*s.Keep))
	for _, r := range rollUps {
		table := s.Records() + r.suffix
		columns, keys, selected := s.rolledUp(r.start)
		list = append(list,
			strings.Replace(s.create(table, columns, "("+strings.Join(keys, ", ")+")", longer*s.Keep), "MergeTree", "AggregatingMergeTree", 1),
			fmt.Sprintf("CREATE MATERIALIZED VIEW IF NOT EXISTS %s_view TO %s AS\nSELECT\n    %s\nFROM %s\nGROUP BY %s",
				table, table, strings.Join(selected, ",\n    "), s.Records(), strings.Join(keys, ", ")))
	}
	return list
}

// Additions add the columns that tables of an earlier version lack.
func (s Schema) Additions() (list []string) {
	for _, c := range recordColumns() {
		list = append(list, "ALTER TABLE "+s.Records()+" ADD COLUMN IF NOT EXISTS "+c.String())
	}
	return list
}

func (c column) String() string {
	text := c.name + " " + c.kind
	if c.comment != "" {
		text += " COMMENT '" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(c.comment) + "'"
	}
	if c.codec != "" {
		text += " CODEC(" + c.codec + ")"
	}
	return text
}

func (s Schema) create(table string, columns []column, order string, keep time.Duration) string {
	lines := make([]string, len(columns))
	for i, c := range columns {
		lines[i] = "    " + c.String()
	}
	partition := "toYYYYMMDD(time)"
	if s.Monthly {
		partition = "toYYYYMM(time)"
	}
	text := fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s\n(\n%s\n)\nENGINE = MergeTree\nPARTITION BY %s\nORDER BY %s\n", table, strings.Join(lines, ",\n"), partition, order)
	if keep > 0 && keep < forever {
		text += fmt.Sprintf("TTL toDateTime(time) + INTERVAL %d HOUR\n", max(1, int(keep.Hours())))
	}
	return text + fmt.Sprintf("SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = %d", s.Window)
}

const (
	timeKind  = "DateTime64(9, 'UTC')"
	timeCodec = "DoubleDelta, ZSTD(1)"
)

// recordColumns are the time of the interval, by which the table is sorted, the fields, and what only the history needs.
func recordColumns() []column {
	list := []column{
		{"time", timeKind, timeCodec, "begin of the interval that counted the packets"},
		{"interval", "UInt64", "DoubleDelta, ZSTD(1)", "number of that interval, of this host"},
		{"row", "UInt32", "DoubleDelta, ZSTD(1)", "place of the record in it"},
		{"repeated", "UInt64", "T64, ZSTD(1)", "packets, among packets, that another record of the host counted too, of the interface they came from"},
		{"ifindex", "UInt32", "T64, ZSTD(1)", "number of the interface"},
	}
	for i := range flow.Fields {
		f := &flow.Fields[i]
		doc := f.Doc
		if f.Kind == flow.Pairs {
			doc += "; index and count of each by turns"
		}
		list = append(list, column{flow.Column(f.Name), f.ClickHouse(), f.ClickHouseCodec(), doc})
	}
	return list
}

// intervalColumns say what is known of an interval without its records.
var intervalColumns = []column{
	{"time", timeKind, timeCodec, "begin of the interval"},
	{"until", timeKind, timeCodec, "its end"},
	{"host", "LowCardinality(String)", "", ""},
	{"sequence", "UInt64", "DoubleDelta, ZSTD(1)", "its number"},
	{"rows", "UInt64", "T64, ZSTD(1)", "its records"},
	{"summed", "UInt64", "T64, ZSTD(1)", "records that were too many to keep"},
	{"wiring", "String", "ZSTD(1)", "how interfaces hung together, in the encoding of the history, as base64"},
}

// rolledUp are the columns of a table of sums, those it is sorted by, and what a view selects: neither addresses nor ports, and
// nothing of inner objects, which few records have.
func (t Tables) rolledUp(start string) (columns []column, keys, selected []string) {
	columns = []column{{"time", "DateTime('UTC')", timeCodec, ""}, {"host", "LowCardinality(String)", "", ""}}
	keys, selected = []string{"time", "host"}, []string{start + "(" + t.Flows + ".time) AS time", "host"}
	for i := range flow.Fields {
		f := &flow.Fields[i]
		object, _ := f.Inside()
		if f.Merge != flow.MergeKey || f.Endpoint || object != "" || f.Kind == flow.Address || f.Port {
			continue
		}
		columns = append(columns, column{name: f.Name, kind: f.ClickHouse()})
		keys, selected = append(keys, f.Name), append(selected, f.Name)
	}
	sum := func(name, of string) {
		columns = append(columns, column{name, "SimpleAggregateFunction(sum, UInt64)", "T64, ZSTD(1)", ""})
		selected = append(selected, of+" AS "+name)
	}
	sum("records", "count()")
	for i := range flow.CounterFields {
		name := flow.Column(flow.CounterFields[i].Name)
		sum(name, "sum("+t.Flows+"."+name+")")
	}
	return columns, keys, selected
}

// Text is the schema as a script for clickhouse-client.
func Text(statements []string) string {
	return strings.Join(slices.Concat(statements, []string{""}), ";\n\n")
}
