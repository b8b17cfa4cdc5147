package api

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// appendRow writes a row as one JSON object.
func appendRow(b []byte, fields []RowField, o *flow.Origin, w *query.Row) []byte {
	b = append(b, '{')
	object := ""
	for i := range fields {
		f := &fields[i]
		if f.absent(o, w) {
			continue
		}
		if f.object != object {
			b = flow.Reopen(b, object, f.object)
			object = f.object
		}
		b = append(append(append(comma(b), '"'), f.key...), `":`...)
		if !f.Kind.Quoted() {
			b = f.append(b, o, w)
			continue
		}
		start := len(b)
		b = f.append(append(b, '"'), o, w)
		if value := b[start+1:]; plain(value) {
			b = append(b, '"')
		} else {
			b = append(b[:start], quoted(string(value))...)
		}
	}
	return append(flow.Reopen(b, object, ""), '}')
}

// comma separates from what stands before, if that is a value.
func comma(b []byte) []byte {
	if b[len(b)-1] == '{' {
		return b
	}
	return append(b, ',')
}

// plain reports whether JSON needs no escapes for a text.
func plain(text []byte) bool {
	return !slices.ContainsFunc(text, func(c byte) bool {
		return c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&'
	})
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // of a string there is no error
	}
	return string(b)
}

// decodeRow is the inverse of appendRow.
func decodeRow(data []byte, w *query.Row) error {
	objects, err := flow.ParseObjects(data)
	if err != nil {
		return err
	}
	*w = query.Row{}
	var o flow.Origin
	for i := range rowFields {
		f := &rowFields[i]
		values, err := objects.Get(f.object)
		if err != nil {
			return err
		}
		raw, ok := values[f.key]
		if !ok || f.set == nil {
			continue
		}
		text := string(raw)
		if f.Kind.Quoted() {
			if err := json.Unmarshal(raw, &text); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
		}
		if err := f.set(text, &o, w); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return nil
}
