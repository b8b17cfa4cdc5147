package jsonl

import (
	"strings"
	"unicode/utf8"

	"github.com/waymark-net/waymark/internal/flow"
)

// column is a field with its place in the object.
type column struct {
	*flow.Field
	object string // key of the inner object, empty: the record itself
	key    string
	before string // comma, key, colon and, of strings, the quote
	quoted bool
}

var columns = func() []column {
	all := make([]column, len(flow.Fields))
	for i := range flow.Fields {
		f := &flow.Fields[i]
		c := column{Field: f, key: f.Name, quoted: f.Kind != flow.Number && f.Kind != flow.Flag}
		if object, key, inner := strings.Cut(f.Name, "."); inner {
			c.object, c.key = object, key
		}
		c.before = `,"` + c.key + `":`
		if c.quoted {
			c.before += `"`
		}
		all[i] = c
	}
	return all
}()

// Append adds the record as one JSON object, without a line end. Bytes of names
// that are not UTF-8 become U+FFFD, as JSON has no way to carry them.
func Append(b []byte, o *flow.Origin, r *flow.Record) []byte {
	opening := len(b) // of the innermost object: there is no comma before its first key
	object := ""
	for i := range columns {
		c := &columns[i]
		if c.Absent != nil && c.Absent(o, r) {
			continue
		}
		if c.object != object {
			if object != "" {
				b = append(b, '}')
			}
			if object = c.object; object != "" {
				b = append(append(append(b, `,"`...), object...), `":`...)
				opening = len(b)
			}
		}
		b = append(b, c.before...)
		b[opening] = '{'
		start := len(b)
		b = c.Append(b, o, r)
		if c.Kind == flow.Text { // names, addresses and times need no escape
			b = escape(b, start)
		}
		if c.quoted {
			b = append(b, '"')
		}
	}
	if object != "" {
		b = append(b, '}')
	}
	return append(b, '}')
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
