package config

import (
	"reflect"
	"strings"
)

// Key describes one key for the reference page.
type Key struct {
	Name    string // full, such as flow.scan_interval; export[].jsonl.path inside a list
	Type    string // such as duration
	Default string // as it is written
	Allowed string // range or words; empty: all of the type
	Doc     string
	Env     string   // its variable; empty inside lists
	Words   []string // all values there are; none: not of a few words
	Reload  bool     // a running agent applies a change of it
}

// Values says what the key takes: its type, and which values of it.
func (k Key) Values() string {
	switch {
	case k.Allowed == "":
		return k.Type
	case k.Type == "word":
		return k.Allowed
	}
	return k.Type + ": " + k.Allowed
}

// Group is keys under one heading.
type Group struct {
	Name string // such as flow; empty: the top
	Doc  string
	Keys []Key
}

// Reference describes every key, in the order of Config.
func Reference() []Group {
	top := Group{Doc: "what stands at the left margin"}
	var rest []Group
	for f := range fieldsOf(reflect.TypeFor[Config]()) {
		name, doc := keyOf(f), f.Tag.Get("doc")
		switch {
		case f.Type.Kind() == reflect.Struct:
			rest = append(rest, Group{Name: name, Doc: doc, Keys: keysIn(f.Type, name, true)})
		case f.Type.Kind() == reflect.Slice && f.Type.Elem() == exportType:
			top.Keys = append(top.Keys, describeKey(f, name, true))
			for e := range f.Type.Elem().Fields() {
				rest = append(rest, Group{
					Name: name + "[]." + keyOf(e),
					Doc:  e.Tag.Get("doc"),
					Keys: keysIn(e.Type.Elem(), name+"[]."+keyOf(e), false),
				})
			}
		default:
			top.Keys = append(top.Keys, describeKey(f, name, true))
			if isStructs(f.Type) {
				top.Keys = append(top.Keys, keysIn(f.Type.Elem(), name+"[]", false)...)
			}
		}
	}
	return append([]Group{top}, rest...)
}

func keysIn(t reflect.Type, prefix string, env bool) []Key {
	var keys []Key
	for f := range fieldsOf(t) {
		name := join(prefix, keyOf(f))
		switch {
		case f.Type.Kind() == reflect.Struct:
			keys = append(keys, keysIn(f.Type, name, env)...)
		case isStructs(f.Type):
			keys = append(keys, describeKey(f, name, env))
			keys = append(keys, keysIn(f.Type.Elem(), name+"[]", false)...)
		default:
			keys = append(keys, describeKey(f, name, env))
		}
	}
	return keys
}

// isStructs reports a list whose entries are mappings.
func isStructs(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

func describeKey(f reflect.StructField, name string, env bool) Key {
	k := Key{
		Name:    name,
		Type:    typeName(f.Type, f.Tag),
		Default: f.Tag.Get("default"),
		Allowed: rangeText(f.Type, f.Tag),
		Doc:     f.Tag.Get("doc"),
		Reload:  canReload(f),
	}
	if isStructs(f.Type) && f.Type.Elem() != exportType {
		k.Type = "list of " + keyOf(f)
	}
	if short := f.Tag.Get("short"); short != "" {
		k.Type += ", short " + shortForm(short)
	}
	if words, ok := f.Tag.Lookup("oneof"); ok {
		k.Words = strings.Fields(words)
		k.Allowed = strings.Join(k.Words, ", ")
	}
	switch f.Type.Kind() {
	case reflect.Slice:
		k.Default = "[]"
	case reflect.String:
		if k.Default == "" {
			k.Default = `""`
		}
	case reflect.Uint32, reflect.Uint64, reflect.Int:
		if k.Default == "" {
			k.Default = "0"
		}
	}
	if env {
		k.Env = envName(name)
	}
	return k
}

// typeName is what a user calls a type.
func typeName(t reflect.Type, tag reflect.StructTag) string {
	kind := tag.Get("kind")
	switch {
	case t.Kind() == reflect.Slice && t.Elem() == exportType:
		return "list of exporters"
	case t.Kind() == reflect.Slice:
		if plural := kinds[kind].plural; plural != "" {
			return "list of " + plural
		}
		return "list of " + typeName(t.Elem(), tag) + "s"
	case t == durationType:
		return "duration"
	case kind == "size":
		return "size"
	case kinds[kind].name != "":
		return kinds[kind].name
	case tag.Get("oneof") != "":
		return "word"
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Bool:
		return "true or false"
	}
	return "number"
}
