package flow

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Inside tells the object that the field stands in, and its key there: of
// pdm.server.count these are pdm.server and count. The object of most is the
// record, which has no name.
func (f *Field) Inside() (object, key string) {
	if dot := strings.LastIndexByte(f.Name, '.'); dot >= 0 {
		return f.Name[:dot], f.Name[dot+1:]
	}
	return "", f.Name
}

// Reported reports whether marks in packets reported it, so that few records have it.
func (f *Field) Reported() bool {
	object, _, _ := strings.Cut(f.Name, ".")
	return object == inPDM.name || object == inIOAM.name
}

// Reopen ends JSON objects and begins others, on the way from a field of one
// object to a field of another. Behind the last field, the way goes to "".
func Reopen(b []byte, from, to string) []byte {
	for !within(to, from) {
		dot := max(strings.LastIndexByte(from, '.'), 0)
		from = from[:dot]
		b = append(b, '}')
	}
	for rest := strings.TrimPrefix(to[len(from):], "."); rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, ".")
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), `":{`...)
	}
	return b
}

// within reports whether object is outer, or an object in it.
func within(object, outer string) bool {
	rest, ok := strings.CutPrefix(object, outer)
	return ok && (rest == "" || outer == "" || rest[0] == '.')
}

// Objects are the objects of a JSON record by name.
type Objects map[string]map[string]json.RawMessage

// ParseObjects reads a record, and its inner objects when they are asked for.
func ParseObjects(record []byte) (Objects, error) {
	values, err := parseObject(record)
	return Objects{"": values}, err
}

// Get returns the values of an object; nil: there is none.
func (o Objects) Get(object string) (map[string]json.RawMessage, error) {
	if values, known := o[object]; known {
		return values, nil
	}
	outer, key := (&Field{Name: object}).Inside()
	around, err := o.Get(outer)
	if err != nil {
		return nil, err
	}
	raw, ok := around[key]
	if !ok {
		o[object] = nil
		return nil, nil
	}
	values, err := parseObject(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", object, err)
	}
	o[object] = values
	return values, nil
}

func parseObject(raw []byte) (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("%s is no object", raw)
	}
	return m, nil
}
