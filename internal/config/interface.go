package config

import (
	"fmt"
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/waymark-net/waymark/internal/flow"
)

// Interface names interfaces to attach to, and the hooks that are attached.
type Interface struct {
	Match     string `yaml:"match" kind:"glob" doc:"name of an interface, or a glob"`
	Direction string `yaml:"direction" default:"both" oneof:"both ingress egress" doc:"packets that are counted there: those that arrive, those that leave, or both"`
	Speed     string `yaml:"speed" kind:"speed" doc:"speed of its link, for waymark why: such as 100Mbit or 1.5Gbit, where the driver does not know it or something behind the interface is slower; empty: what the driver of a physical interface reports"`
}

// String is the entry as it is written in its short form.
func (i Interface) String() string {
	direction := i.Direction
	if direction == "" {
		direction = "both"
	}
	switch {
	case i.Speed != "":
		return i.Match + ":" + direction + ":" + i.Speed
	case direction != "both":
		return i.Match + ":" + direction
	}
	return i.Match
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

// Speed is the speed of the link of an interface as it is configured, in bit/s; 0: it is not.
func (c *Config) Speed(name string) uint64 {
	for _, i := range c.Interfaces {
		if ok, _ := path.Match(i.Match, name); ok {
			speed, _ := ParseSpeed(i.Speed) // checked when it was read
			return speed
		}
	}
	return 0
}

// speedUnits are the powers of 1000 that speeds are written with.
var speedUnits = map[string]float64{"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}

var speedForm = regexp.MustCompile(`^(\d{1,12}(?:\.\d{1,6})?)([a-z]+)$`)

// ParseSpeed reads a speed like 100Mbit, in bit/s; an empty text is 0.
func ParseSpeed(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	parts := speedForm.FindStringSubmatch(strings.ToLower(s))
	if parts == nil || speedUnits[parts[2]] == 0 {
		return 0, fmt.Errorf("%q is no speed", s)
	}
	n, err := strconv.ParseFloat(parts[1], 64)
	bits := n * speedUnits[parts[2]]
	if err != nil || bits < 1 || bits > 1e15 {
		return 0, fmt.Errorf("%q is no speed of a link", s)
	}
	return uint64(bits), nil
}

func checkSpeed(s string) error {
	_, err := ParseSpeed(s)
	return err
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

// shortForm is what a user calls a short form: match, match:direction or match:direction:speed.
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
