package obs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Section is what one stage reports. In JSON it is a field of the status, named
// after the stage.
type Section struct {
	Name  string
	Value any // a pointer to the stage's own type; nil: only raw is known

	raw json.RawMessage
}

// Has reports whether a stage has a section.
func (s *Status) Has(name string) bool {
	return slices.ContainsFunc(s.Sections, func(one Section) bool { return one.Name == name })
}

// SectionOf is the section of a stage, in the stage's own type; nil where the
// agent reports none.
func SectionOf[T any](s *Status, name string) *T {
	i := slices.IndexFunc(s.Sections, func(one Section) bool { return one.Name == name })
	if i < 0 {
		return nil
	}
	if v, ok := s.Sections[i].Value.(*T); ok {
		return v
	}
	v := new(T)
	if json.Unmarshal(s.Sections[i].raw, v) != nil {
		return nil // of another version
	}
	return v
}

// plain is a Status without sections.
type plain Status

// MarshalJSON adds a field for each section.
func (s Status) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(plain(s))
	if err != nil {
		return nil, err
	}
	out := bytes.NewBuffer(b[:len(b)-1])
	for _, one := range s.Sections {
		value := []byte(one.raw)
		if one.Value != nil {
			if value, err = json.Marshal(one.Value); err != nil {
				return nil, fmt.Errorf("section %s: %w", one.Name, err)
			}
		}
		fmt.Fprintf(out, ",%q:%s", one.Name, value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// UnmarshalJSON takes fields that a status itself does not have for sections.
func (s *Status) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, (*plain)(s)); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	for f := range reflect.TypeFor[Status]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		delete(all, name)
	}
	s.Sections = nil
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s.Sections = append(s.Sections, Section{Name: name, raw: all[name]})
	}
	return nil
}
