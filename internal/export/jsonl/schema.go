package jsonl

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
)

// schema is the part of a JSON Schema (draft 2020-12) that a record needs.
type schema struct {
	Draft       string     `json:"$schema,omitempty"`
	Title       string     `json:"title,omitempty"`
	Description string     `json:"description,omitempty"`
	Type        string     `json:"type,omitempty"`
	Const       any        `json:"const,omitempty"`
	Format      string     `json:"format,omitempty"`
	AnyOf       []schema   `json:"anyOf,omitempty"`
	Enum        []string   `json:"enum,omitempty"`
	Minimum     *int64     `json:"minimum,omitempty"`
	Maximum     *uint64    `json:"maximum,omitempty"`
	Items       *schema    `json:"items,omitempty"`
	MinItems    int        `json:"minItems,omitempty"`
	MaxItems    int        `json:"maxItems,omitempty"`
	Properties  properties `json:"properties,omitempty"`
	Required    []string   `json:"required,omitempty"`
	If          *schema    `json:"if,omitempty"`
	Else        *schema    `json:"else,omitempty"`
}

// properties keeps the order of the record.
type properties []property

type property struct {
	name string
	schema
}

func (p properties) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i := range p {
		value, err := json.Marshal(&p[i].schema)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "%q:%s", p[i].name, value)
	}
	return append(b, '}'), nil
}

func (s *schema) add(p property) { s.Properties = append(s.Properties, p) }

// inner is the schema of an inner object, by its name with dots; it is the last
// property, or is made.
func (s *schema) inner(object string) *schema {
	name, rest, deeper := strings.Cut(object, ".")
	if last := len(s.Properties) - 1; last < 0 || s.Properties[last].name != name {
		s.add(property{name, schema{Type: "object"}})
	}
	in := &s.Properties[len(s.Properties)-1].schema
	if deeper {
		return in.inner(rest)
	}
	return in
}

// Schema is the JSON Schema of a line, made of flow.Fields.
func Schema() []byte {
	record := schema{
		Draft: "https://json-schema.org/draft/2020-12/schema",
		Title: "Waymark flow record", Type: "object",
		Description: "One flow in one direction on one interface over one interval; counters are deltas.",
	}
	attributed := schema{}
	unattributed := schema{
		Properties: properties{{"unattributed", schema{Const: true}}},
		Required:   []string{"unattributed"},
	}

	for i := range columns {
		c := &columns[i]
		p := property{c.key, valueSchema(c.Field)}
		if c.object != "" {
			record.inner(c.object).add(p)
			continue
		}
		record.add(p)
		switch {
		case c.Absent == nil:
			record.Required = append(record.Required, p.name)
		case !c.Absent(&flow.Origin{}, &flow.Record{}) && c.Absent(&flow.Origin{}, &flow.Record{Unattributed: true}):
			attributed.Required = append(attributed.Required, p.name)
		}
	}
	record.If, record.Else = &unattributed, &attributed

	b, err := json.MarshalIndent(&record, "", "  ")
	if err != nil {
		panic("jsonl: schema: " + err.Error()) // strings and numbers alone
	}
	return append(b, '\n')
}

func valueSchema(f *flow.Field) schema {
	s := schema{Description: f.Doc, Type: "string"}
	if f.Unit != "" {
		s.Description += " (" + f.Unit + ")"
	}
	switch f.Kind {
	case flow.Protocol:
		least, most := f.Range()
		s.Type, s.AnyOf = "", []schema{{Type: "integer", Minimum: &least, Maximum: &most}, {Type: "string"}}
		s.Description += "; its name where the exporter is configured so"
	case flow.Name:
		s.Enum = f.Choices()
	case flow.Address:
		s.AnyOf = []schema{{Format: "ipv4"}, {Format: "ipv6"}}
	case flow.Time:
		s.Format = "date-time"
	case flow.Number, flow.Bits, flow.Signed:
		s.Type = "integer"
		least, most := f.Range()
		s.Minimum, s.Maximum = &least, &most
	case flow.Pairs:
		s.Type = "array"
		s.Items = &schema{Type: "array", Items: &schema{Type: "integer", Minimum: new(int64)}, MinItems: 2, MaxItems: 2}
	case flow.Flag:
		s.Type = "boolean"
	}
	return s
}
