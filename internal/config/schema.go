package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Schema is the JSON Schema (draft 2020-12) of a configuration file, with which
// editors complete and check it while it is written.
func Schema() map[string]any {
	s := structSchema(reflect.TypeFor[Config]())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Waymark configuration"
	return s
}

func structSchema(t reflect.Type) map[string]any {
	properties := map[string]any{}
	for f := range fieldsOf(t) {
		p := typeSchema(f.Type, f.Tag)
		if doc := f.Tag.Get("doc"); doc != "" {
			p["description"] = doc
		}
		properties[keyOf(f)] = p
	}
	s := map[string]any{
		"type":                 []string{"object", "null"},
		"additionalProperties": false,
		"properties":           properties,
	}
	if t == exportType {
		s["type"], s["minProperties"], s["maxProperties"] = "object", 1, 1
	}
	return s
}

func typeSchema(t reflect.Type, tag reflect.StructTag) map[string]any {
	s := plainSchema(t, tag)
	if tag.Get("keyed") == "" || t.Kind() != reflect.Slice {
		return s
	}
	named := map[string]any{"type": "object", "additionalProperties": structSchema(t.Elem())}
	return map[string]any{"anyOf": []any{s, named}}
}

func plainSchema(t reflect.Type, tag reflect.StructTag) map[string]any {
	switch {
	case t.Kind() == reflect.Pointer:
		return structSchema(t.Elem())
	case t.Kind() == reflect.Struct:
		return structSchema(t)
	case t.Kind() == reflect.Slice && tag.Get("short") != "":
		items := typeSchema(t.Elem(), tag)
		items["type"] = "object"
		return map[string]any{"type": "array", "items": map[string]any{"anyOf": []any{map[string]any{"type": "string"}, items}}}
	case t.Kind() == reflect.Slice:
		return map[string]any{"type": "array", "items": typeSchema(t.Elem(), tag)}
	case t == durationType:
		return withDefault(map[string]any{"type": "string", "pattern": `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`}, tag)
	case tag.Get("kind") == "size":
		return withDefault(map[string]any{"type": []string{"string", "integer"}, "pattern": `^[0-9]+([KMGT](iB|B)?|B)?$`}, tag)
	case t.Kind() == reflect.String:
		s := map[string]any{"type": "string"}
		if kinds[tag.Get("kind")].number {
			s["type"] = []string{"string", "integer"}
		}
		if words := strings.Fields(tag.Get("oneof")); len(words) > 0 {
			s["enum"] = words
		}
		return withDefault(s, tag)
	case t.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean", "default": tag.Get("default") == "true"}
	}
	return numberSchema(t, tag)
}

func withDefault(s map[string]any, tag reflect.StructTag) map[string]any {
	// A list's tags describe its items, and those have no default.
	if def, ok := tag.Lookup("default"); ok {
		s["default"] = def
	}
	return s
}

func numberSchema(t reflect.Type, tag reflect.StructTag) map[string]any {
	s := map[string]any{"type": "integer"}
	unsigned := slices.Contains([]reflect.Kind{reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64}, t.Kind())
	if unsigned {
		s["minimum"] = int64(0)
	}
	if t.Kind() == reflect.Uint32 {
		s["maximum"] = int64(1<<32 - 1)
	}
	for tagName, name := range map[string]string{"default": "default", "min": "minimum", "max": "maximum"} {
		if n, err := strconv.ParseInt(tag.Get(tagName), 10, 64); err == nil {
			s[name] = n
		}
	}
	return s
}
