package config

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Change is a key that two configurations set differently.
type Change struct {
	Key      string `json:"key"`
	Old, New string // as YAML in one line
	Reload   bool   // a running agent can apply it: the field has the tag reload
}

// String is the change for a log or a terminal.
func (c Change) String() string { return fmt.Sprintf("%s: %s → %s", c.Key, c.Old, c.New) }

// Changes lists what differs between the configuration of a running agent and
// the next one, in the order of the reference page. Of a list without a short form,
// Old and New have the entries that the other has not.
func Changes(running, next Config) []Change {
	return changes(reflect.ValueOf(running), reflect.ValueOf(next), "")
}

func changes(old, next reflect.Value, prefix string) (out []Change) {
	for f, ov := range valuesOf(old) {
		nv, key := valueOf(next, f), join(prefix, keyOf(f))
		switch {
		case ov.Kind() == reflect.Struct:
			out = append(out, changes(ov, nv, key)...)
		case !sameValue(ov, nv):
			if isStructs(f.Type) && f.Tag.Get("short") == "" { // long lists, of which little changes
				ov, nv = onlyHere(ov, nv), onlyHere(nv, ov)
			}
			out = append(out, Change{Key: key, Old: line(ov, f.Tag), New: line(nv, f.Tag), Reload: canReload(f)})
		}
	}
	return out
}

// sameValue: an empty list is the same whether it was written or not, at any depth.
func sameValue(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !sameValue(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() && b.IsNil()
		}
		return sameValue(a.Elem(), b.Elem())
	case reflect.Struct:
		if hasUnexported(a.Type()) {
			break
		}
		for i := range a.NumField() {
			if !sameValue(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// hasUnexported marks types of other packages, such as time.Time.
func hasUnexported(t reflect.Type) bool {
	for f := range t.Fields() {
		if !f.IsExported() {
			return true
		}
	}
	return false
}

// onlyHere is the part of a list that other has not.
func onlyHere(v, other reflect.Value) reflect.Value {
	part := reflect.MakeSlice(v.Type(), 0, v.Len())
	for i := range v.Len() {
		there := false
		for j := range other.Len() {
			there = there || reflect.DeepEqual(v.Index(i).Interface(), other.Index(j).Interface())
		}
		if !there {
			part = reflect.Append(part, v.Index(i))
		}
	}
	return part
}

// Reloaded is the configuration of a running agent after it reloaded next:
// keys that cannot change at run time keep their values.
func Reloaded(running, next Config) Config {
	running.Stages = running.Stages.clone()
	takeReloadable(reflect.ValueOf(&running).Elem(), reflect.ValueOf(next))
	return running
}

func takeReloadable(old, next reflect.Value) {
	for f, ov := range valuesOf(old) {
		nv := valueOf(next, f)
		switch {
		case ov.Kind() == reflect.Struct:
			takeReloadable(ov, nv)
		case canReload(f):
			ov.Set(nv)
		}
	}
}

func canReload(f reflect.StructField) bool { return f.Tag.Get("reload") == "yes" }

// line is a value as YAML in one line.
func line(v reflect.Value, tag reflect.StructTag) string {
	n := valueNode(v, tag, "", nil)
	flowStyle(n)
	b, err := yaml.Marshal(n)
	if err != nil { // unreachable: the node was made here
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}

func flowStyle(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle
	}
	for _, c := range n.Content {
		flowStyle(c)
	}
}
