package config

import (
	"iter"
	"reflect"
	"slices"
	"strconv"
)

// Section is the part of the configuration that a stage owns: a struct whose
// fields have the tags of keys. The package of the stage registers it, and with it
// the keys are read, checked, documented and reloaded like all others.
type Section[T any] struct {
	Name string // its key, which is also the name of the stage
	Doc  string
	// On reports whether the section enables the stage; nil: it is about no stage.
	On func(*T) bool
	// Check reports values that are impossible together; nil: all are possible.
	Check func(s *T, complain Complain)
	// CheckWhole reports what is impossible together with other sections; nil: nothing is.
	CheckWhole func(s *T, c *Config, complain Complain)
	// Headroom is how many bytes the stage reserves of the MTU of an interface; nil: none.
	Headroom func(s *T, iface string) int

	index int
}

// Complain reports what is wrong with the value of a key, and what is allowed.
type Complain func(key, what, allowed string)

// MTUHeadroom is how many bytes sections take of the MTU of an interface, as far as the
// configuration tells.
func (c *Config) MTUHeadroom(iface string) (bytes int) {
	for i, s := range sections {
		if i < len(c.Stages) && s.headroom != nil && s.on(c.Stages[i]) {
			bytes += s.headroom(c.Stages[i], iface)
		}
	}
	return bytes
}

// Sections are pointers to the values of all registered sections. Copies of a
// Config share them, therefore only Section.Edit changes one.
type Sections []any

// registered is what this package needs of a section, whatever its type.
type registered struct {
	field    reflect.StructField
	on       func(any) bool
	check    func(any, Complain)
	whole    func(any, *Config, Complain)
	headroom func(v any, iface string) int
}

// sections are added while packages are initialized, and never change after that.
var sections []registered

// Register adds a section to every Config. A package calls it to initialize a variable.
func Register[T any](s Section[T]) *Section[T] {
	name, doc := s.Name, s.Doc
	s.index = len(sections)
	if _, ok := fieldOf(reflect.TypeFor[Config](), name); ok {
		panic("config: a second section " + name)
	}
	stages, _ := reflect.TypeFor[Config]().FieldByName("Stages")
	one := registered{
		field: reflect.StructField{
			Name: name, Type: reflect.TypeFor[T](), Index: append(slices.Clone(stages.Index), s.index),
			Tag: reflect.StructTag("yaml:" + strconv.Quote(name) + " doc:" + strconv.Quote(doc)),
		},
		on: func(v any) bool { return s.On != nil && s.On(v.(*T)) },
	}
	if s.Check != nil {
		one.check = func(v any, complain Complain) { s.Check(v.(*T), complain) }
	}
	if s.Headroom != nil {
		one.headroom = func(v any, iface string) int { return s.Headroom(v.(*T), iface) }
	}
	if s.CheckWhole != nil {
		one.whole = func(v any, c *Config, complain Complain) { s.CheckWhole(v.(*T), c, complain) }
	}
	sections = append(sections, one)
	return &s
}

// Of is the section of a configuration.
func (s *Section[T]) Of(c *Config) T {
	if s.index >= len(c.Stages) {
		return *new(T)
	}
	return *c.Stages[s.index].(*T)
}

// Edit is the section of c, to be changed; copies of c keep theirs.
func (s *Section[T]) Edit(c *Config) *T {
	own := s.Of(c)
	c.Stages = slices.Clone(c.Stages)
	if len(c.Stages) == 0 {
		c.Stages = zeroSections()
	}
	c.Stages[s.index] = &own
	return &own
}

// Enabled reports whether a configuration enables the stage.
func (s *Section[T]) Enabled(c *Config) bool {
	own := s.Of(c)
	return s.On(&own)
}

func zeroSections() Sections {
	all := make(Sections, len(sections))
	for i, s := range sections {
		all[i] = reflect.New(s.field.Type).Interface()
	}
	return all
}

// clone shares nothing that is changed in place.
func (s Sections) clone() Sections {
	all := zeroSections()
	for i, one := range s {
		reflect.ValueOf(all[i]).Elem().Set(reflect.ValueOf(one).Elem())
	}
	return all
}

// fieldsOf are the fields of a struct, with the sections in place of Stages, and with those of an
// embedded struct in its place.
func fieldsOf(t reflect.Type) iter.Seq[reflect.StructField] {
	return func(yield func(reflect.StructField) bool) {
		for f := range t.Fields() {
			if f.Anonymous {
				for inner := range fieldsOf(f.Type) {
					inner.Index = append(slices.Clone(f.Index), inner.Index...)
					if !yield(inner) {
						return
					}
				}
				continue
			}
			if f.Type != reflect.TypeFor[Sections]() {
				if !yield(f) {
					return
				}
				continue
			}
			for _, s := range sections {
				if !yield(s.field) {
					return
				}
			}
		}
	}
}

// valuesOf are the fields with their values in v.
func valuesOf(v reflect.Value) iter.Seq2[reflect.StructField, reflect.Value] {
	return func(yield func(reflect.StructField, reflect.Value) bool) {
		for f := range fieldsOf(v.Type()) {
			if !yield(f, valueOf(v, f)) {
				return
			}
		}
	}
}

// valueOf is the value of one of fieldsOf in v.
func valueOf(v reflect.Value, f reflect.StructField) reflect.Value {
	if v.Type().Field(f.Index[0]).Type != reflect.TypeFor[Sections]() {
		return v.FieldByIndex(f.Index)
	}
	all, n := v.Field(f.Index[0]), f.Index[1]
	if n >= all.Len() { // a Config that is not made by Default
		return reflect.New(f.Type).Elem()
	}
	return all.Index(n).Elem().Elem()
}

// checkSections is the part of checkWhole for stages.
func (w *whole) checkSections(c *Config) {
	for i, s := range sections {
		if i >= len(c.Stages) {
			return
		}
		name := keyOf(s.field)
		if c.Probe == "afpacket" && s.on(c.Stages[i]) {
			w.complain(name, "not available with the afpacket probe, which only counts packets", "set probe: ebpf, or remove "+name)
		}
		if s.check != nil {
			s.check(c.Stages[i], w.complain)
		}
		if s.whole != nil {
			s.whole(c.Stages[i], c, w.complain)
		}
	}
}
