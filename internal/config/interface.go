package config

import (
	"fmt"
	"path"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/waymark-net/waymark/internal/flow"
)

// Interface names interfaces to attach to, and the hooks that are attached.
type Interface struct {
	Match     string `yaml:"match" kind:"glob" doc:"name of an interface, or a glob"`
	Direction string `yaml:"direction" default:"both" oneof:"both ingress egress" doc:"packets that are counted there: those that arrive, those that leave, or both"`
}

// String is the entry as it is written in its short form.
func (i Interface) String() string {
	if i.Direction == "" || i.Direction == "both" {
		return i.Match
	}
	return i.Match + ":" + i.Direction
}

// Patterns are the names and globs alone.
func (c *Config) Patterns() []string {
	patterns := make([]string, len(c.Interfaces))
	for i := range c.Interfaces {
		patterns[i] = c.Interfaces[i].Match
	}
	return patterns
}

// InterfaceTexts are the entries in their short form.
func (c *Config) InterfaceTexts() []string {
	texts := make([]string, len(c.Interfaces))
	for i := range c.Interfaces {
		texts[i] = c.Interfaces[i].String()
	}
	return texts
}

// Directions are the directions in which packets of an interface are counted:
// those of the first entry that matches its name; all when none does.
func (c *Config) Directions(name string) []flow.Direction {
	for _, i := range c.Interfaces {
		if ok, _ := path.Match(i.Match, name); !ok {
			continue
		}
		if one, err := flow.ParseDirection(i.Direction); err == nil {
			return []flow.Direction{one}
		}
		break
	}
	return []flow.Direction{flow.Ingress, flow.Egress}
}

// isText reports whether an entry of a list may be a short form.
func isText(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null"
}

// short reads the short form of a mapping: values joined by colons.
func (d *decoder) short(n *yaml.Node, v reflect.Value, form, key string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.origins[key] = d.where(n)
	names := strings.Split(form, ":")
	values := strings.Split(n.Value, ":")
	if len(values) > len(names) {
		d.complain(n, key, fmt.Sprintf("%q has %d parts", n.Value, len(values)), "write it like "+shortForm(form))
		return
	}
	for i, text := range values {
		f, _ := fieldOf(v.Type(), names[i])
		part := *n
		part.Value = text
		d.scalar(&part, v.FieldByIndex(f.Index), f.Tag, key)
	}
}

// shortForm is what a user calls a short form: match or match:direction.
func shortForm(form string) string {
	names := strings.Split(form, ":")
	words := make([]string, len(names))
	for i := range names {
		words[i] = strings.Join(names[:i+1], ":")
	}
	return orList(words)
}

// shortText is the inverse of short.
func shortText(v reflect.Value, form string) string {
	var parts []string
	used := 0
	for i, name := range strings.Split(form, ":") {
		f, _ := fieldOf(v.Type(), name)
		value := text(v.FieldByIndex(f.Index), f.Tag)
		parts = append(parts, value)
		if value != f.Tag.Get("default") {
			used = i + 1
		}
	}
	return strings.Join(parts[:used], ":")
}
