package jsonl

import (
	"slices"
	"unicode/utf8"

	"github.com/waymark-net/waymark/internal/flow"
)

// column is a field with its place in the object.
type column struct {
	*flow.Field
	object string // that it stands in, empty: the record itself
	key    string
	before string // comma, key, colon and, of strings, the quote
}

// columns are those of records, worded those with names for numbers.
var columns, worded = newColumns(false), newColumns(true)

func newColumns(words bool) []column {
	all := make([]column, len(flow.Fields))
	for i := range flow.Fields {
		f := &flow.Fields[i]
		if words && f.Kind == flow.Protocol {
			word := *f
			word.Kind, word.Append = flow.Name, f.AppendWord
			f = &word
		}
		c := column{Field: f}
		c.object, c.key = f.Inside()
		c.before = `,"` + c.key + `":`
		if f.Kind.Quoted() {
			c.before += `"`
		}
		all[i] = c
	}
	return all
}

// common is how many columns there are before the objects pdm and ioam, which few records have.
var common = slices.IndexFunc(columns, func(c column) bool { return c.object == "pdm" })

// Append adds the record as one JSON object, without a line end. Bytes of names
// that are not UTF-8 become U+FFFD, as JSON has no way to carry them.
func Append(b []byte, o *flow.Origin, r *flow.Record) []byte { return appendColumns(b, columns, o, r) }

// AppendWords is Append with names of protocols.
func AppendWords(b []byte, o *flow.Origin, r *flow.Record) []byte {
	return appendColumns(b, worded, o, r)
}

func appendColumns(b []byte, columns []column, o *flow.Origin, r *flow.Record) []byte {
	b = append(b, '{')
	object := ""
	if r.PDM == nil && r.IOAM == nil {
		columns = columns[:common]
	}
	for i := range columns {
		c := &columns[i]
		if c.Absent != nil && c.Absent(o, r) {
			continue
		}
		if c.object != object {
			b = flow.Reopen(b, object, c.object)
			object = c.object
		}
		before := c.before
		if b[len(b)-1] == '{' {
			before = before[1:] // no comma
		}
		b = append(b, before...)
		start := len(b)
		b = c.Append(b, o, r)
		if c.Kind == flow.Text { // names, addresses and times need no escape
			b = escape(b, start)
		}
		if c.Kind.Quoted() {
			b = append(b, '"')
		}
	}
	return append(flow.Reopen(b, object, ""), '}')
}

// escape makes b[start:] the inside of a JSON string (RFC 8259 section 7).
func escape(b []byte, start int) []byte {
	for i := start; i < len(b); i++ {
		if c := b[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return appendEscaped(b[:start], string(b[start:]))
		}
	}
	return b
}

func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		default:
			b = utf8.AppendRune(b, c)
		}
	}
	return b
}
