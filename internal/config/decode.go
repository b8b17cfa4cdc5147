package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/waymark-net/waymark/internal/suggest"
)

// Origins says where each value that is not a default was set, by key.
type Origins map[string]string

// at is where the key, or what holds it, was set.
func (o Origins) at(key string) string {
	for key != "" {
		if where, ok := o[key]; ok {
			return where
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return "default"
}

// Elsewhere reports whether a variable or a flag set the key, and no file.
func (o Origins) Elsewhere(key string) bool {
	return strings.HasPrefix(o[key], "--") || strings.HasPrefix(o[key], envPrefix)
}

// decoder reads YAML nodes into a Config and goes on after a problem, so that
// all of them are reported at once.
type decoder struct {
	where    func(*yaml.Node) string // what the user calls the place of a node
	origins  Origins
	problems Problems
}

func (d *decoder) complain(n *yaml.Node, key, what, allowed string) {
	d.problems = append(d.problems, Problem{At: d.where(n), Key: key, What: what, Allowed: allowed})
}

// value reads n into v, a field with the tag, under the full name key.
func (d *decoder) value(n *yaml.Node, v reflect.Value, tag reflect.StructTag, key string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.origins[key] = d.where(n)
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(n, v, key)
	case reflect.Slice:
		d.list(n, v, tag, key)
	default:
		d.scalar(n, v, tag, key)
	}
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, tag reflect.StructTag, key string) {
	switch {
	case n.Kind != yaml.ScalarNode:
		d.complain(n, key, describe(n)+" where one value belongs", allowed(v.Type(), tag))
	case n.ShortTag() == "!!null":
		d.complain(n, key, "no value", "leave the key out for the default")
	case v.Kind() == reflect.String && n.ShortTag() != "!!str" &&
		!(kinds[tag.Get("kind")].number && n.ShortTag() == "!!int"):
		hint := fmt.Sprintf("write %q", n.Value)
		if tag.Get("oneof") != "" {
			hint = allowed(v.Type(), tag)
		}
		d.complain(n, key, n.Value+" is not text", hint)
	default:
		if c := setText(v, tag, n.Value); c != nil {
			d.complain(n, key, c.what, c.allowed)
		}
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, tag reflect.StructTag, key string) {
	if by := tag.Get("keyed"); by != "" && n.Kind == yaml.MappingNode {
		d.keyed(n, v, tag, by, key)
		return
	}
	if n.Kind != yaml.SequenceNode {
		hint := "write [] for none"
		switch {
		case v.Type().Elem() == exportType:
			hint = exportHint
		case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null":
			hint = "write [" + n.Value + "]"
		}
		d.complain(n, key, describe(n)+" where a list belongs", hint)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := key + "[" + strconv.Itoa(i) + "]"
		if v.Type().Elem() == exportType {
			d.exporter(item, v.Index(i), at)
		} else {
			if v.Index(i).Kind() == reflect.Struct {
				setDefaults(v.Index(i))
			}
			if short := tag.Get("short"); short != "" && isText(item) {
				d.short(item, v.Index(i), short, at)
				continue
			}
			d.value(item, v.Index(i), tag, at)
		}
	}
}

// keyed reads a list that is written as a mapping: the names in it are a key of each entry.
func (d *decoder) keyed(n *yaml.Node, v reflect.Value, tag reflect.StructTag, by, key string) {
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content)/2, len(n.Content)/2))
	f, _ := fieldOf(v.Type().Elem(), by)
	for i := range v.Len() {
		at := key + "[" + strconv.Itoa(i) + "]"
		name, entry := n.Content[2*i], v.Index(i)
		setDefaults(entry)
		d.value(n.Content[2*i+1], entry, tag, at)
		if given := valueOf(entry, f); !given.IsZero() {
			d.complain(n.Content[2*i+1], join(at, by), "given twice", "the first is at "+d.where(name))
		}
		d.value(name, valueOf(entry, f), f.Tag, join(at, by))
		d.origins[at] = d.where(name)
	}
}

// mapping reads the keys of a struct.
func (d *decoder) mapping(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return // every key below it is commented out
	}
	if n.Kind != yaml.MappingNode {
		d.complain(n, key, describe(n)+" where keys belong", "allowed: "+orList(keysOf(v.Type())))
		return
	}
	d.pairs(n, v.Type(), key, func(f reflect.StructField, n *yaml.Node, key string) {
		d.value(n, valueOf(v, f), f.Tag, key)
	})
}

var exportType = reflect.TypeFor[Export]()

const exportHint = "write each exporter like - jsonl: {path: flows.jsonl}, and [] for none"

// exporter reads one entry of the list export: a mapping with one key that names
// the kind of exporter.
func (d *decoder) exporter(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		d.complain(n, key, describe(n)+" where an exporter belongs", exportHint)
		return
	}
	if len(n.Content) > 2 {
		d.complain(n.Content[2], key, "a second key in one entry", "begin each exporter with its own dash, and indent its keys below its name")
		return
	}
	d.origins[key] = d.where(n)
	d.pairs(n, v.Type(), key, func(f reflect.StructField, n *yaml.Node, key string) {
		one := reflect.New(f.Type.Elem())
		setDefaults(one.Elem())
		d.value(n, one.Elem(), f.Tag, key)
		v.FieldByIndex(f.Index).Set(one)
	})
}

// pairs calls set for each known key of a mapping and complains of the rest.
func (d *decoder) pairs(n *yaml.Node, t reflect.Type, key string, set func(reflect.StructField, *yaml.Node, string)) {
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		full := join(key, name.Value)
		f, ok := fieldOf(t, name.Value)
		switch {
		case name.Kind != yaml.ScalarNode:
			d.complain(name, key, describe(name)+" where the name of a key belongs", "allowed here: "+strings.Join(keysOf(t), ", "))
		case seen[name.Value] != nil:
			d.complain(name, full, "given twice", "the first is at "+d.where(seen[name.Value]))
		case !ok:
			d.complain(name, full, "unknown key", unknownKey(name.Value, t))
		default:
			set(f, n.Content[i+1], full)
		}
		seen[name.Value] = name
	}
}

// unknownKey says what was meant, or what there is.
func unknownKey(name string, t reflect.Type) string {
	known := keysOf(t)
	if near := suggest.Nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "allowed here: " + strings.Join(known, ", ")
}

// describe names what stands at a node.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!null":
		return "nothing"
	}
	return strconv.Quote(n.Value)
}

// keyOf is the YAML name of a field.
func keyOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

func keysOf(t reflect.Type) []string {
	var names []string
	for f := range fieldsOf(t) {
		names = append(names, keyOf(f))
	}
	return names
}

func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	for f := range fieldsOf(t) {
		if keyOf(f) == name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}
