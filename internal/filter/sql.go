package filter

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
)

// Dialect is how an engine of SQL reads what differs between them.
type Dialect struct {
	Column    func(name string) string          // of a field; nil: its name in quotes
	Parameter func(n int, v any) string         // the n-th, from 1 on
	Match     func(column, regex string) string // the text matches a regular expression
	And       func(a, b string) string          // of bits; nil: &
}

// DuckDB reads the files of the history.
var DuckDB = Dialect{
	Parameter: func(n int, _ any) string { return fmt.Sprintf("$%d", n) },
	Match:     func(column, regex string) string { return "regexp_matches(" + column + ", " + regex + ")" },
}

// SQLite is that of its command line.
var SQLite = Dialect{
	Parameter: func(n int, _ any) string { return fmt.Sprintf("?%d", n) },
	Match:     func(column, regex string) string { return column + " REGEXP " + regex },
}

// ClickHouse has named parameters with types: p1, p2, …
var ClickHouse = Dialect{
	Column: flow.Column,
	Parameter: func(n int, v any) string {
		kind := "UInt64"
		switch v.(type) {
		case string:
			kind = "String"
		case []byte:
			kind = "IPv6"
		}
		return fmt.Sprintf("{p%d:%s}", n, kind)
	},
	Match: func(column, regex string) string { return "match(" + column + ", " + regex + ")" },
	And:   func(a, b string) string { return "bitAnd(" + a + ", " + b + ")" },
}

// SQL is a condition with parameters: no value is part of the text.
type SQL struct {
	Where string
	Args  []any // uint64, string or []byte
}

// SQL compiles the filter for tables that have a column for each field, by its name, and NULL
// where a value is missing.
func (f Filter) SQL(d Dialect) SQL {
	var q SQL
	join := func(sign, empty string) func([]string) string {
		return func(list []string) string { return "(" + strings.Join(append([]string{empty}, list...), sign) + ")" }
	}
	q.Where = Compile(f, Target[string]{
		Or: join(" OR ", "1=0"), And: join(" AND ", "1=1"),
		Not:  func(s string) string { return "NOT " + s },
		Test: func(t *Test) string { return "coalesce(" + q.test(d, t) + ", 1=0)" }, // NULL is neither true nor false
	})
	return q
}

func (d *Dialect) column(name string) string {
	if d.Column == nil {
		return `"` + name + `"`
	}
	return d.Column(name)
}

func (d *Dialect) and(a, b string) string {
	if d.And == nil {
		return "(" + a + " & " + b + ")"
	}
	return d.And(a, b)
}

func (q *SQL) arg(d Dialect, v any) string {
	q.Args = append(q.Args, v)
	return d.Parameter(len(q.Args), v)
}

var sqlOrders = map[Op]string{OpEqual: "=", OpLess: "<", OpLessOrEqual: "<=", OpGreater: ">", OpGreaterOrEqual: ">="}

func (q *SQL) test(d Dialect, t *Test) string {
	column := d.column(t.Field.Name)
	if t.Mask != 0 {
		column = d.and(column, q.arg(d, t.Mask))
	}
	value := func(n uint64) any {
		if t.Field.Kind == flow.Name {
			return t.Field.Values[n]
		}
		return n
	}
	switch t.Op {
	case OpBetween:
		return fmt.Sprintf("%s BETWEEN %s AND %s", column, q.arg(d, t.Low), q.arg(d, t.High))
	case OpAllBits:
		return d.and(column, q.arg(d, t.Low)) + " = " + q.arg(d, t.Low)
	case OpIs:
		return column + " = " + q.arg(d, t.Text)
	case OpMatch:
		return d.Match(column, q.arg(d, t.Text))
	case OpWithin:
		family, first, last := Edges(t.Prefix)
		return fmt.Sprintf("%s = %s AND %s BETWEEN %s AND %s", d.column("family"), q.arg(d, family), column, q.arg(d, first), q.arg(d, last))
	case OpTrue:
		return column
	case OpPresent:
		return column + " IS NOT NULL"
	}
	return column + " " + sqlOrders[t.Op] + " " + q.arg(d, value(t.Low))
}

// Edges are the first and the last address of a prefix, IPv4 mapped to IPv6.
func Edges(p netip.Prefix) (family uint64, first, last []byte) {
	a, bits := p.Masked().Addr(), p.Bits()
	if family = 6; a.Is4() {
		family, bits = 4, bits+96
	}
	low := a.As16()
	high := low
	for bit := bits; bit < 128; bit++ {
		high[bit/8] |= 0x80 >> (bit % 8)
	}
	return family, low[:], high[:]
}
