package config

import "reflect"

// Default is the configuration of a host that sets nothing.
func Default() Config {
	c := Config{Stages: zeroSections()}
	setDefaults(reflect.ValueOf(&c).Elem())
	return c
}

// setDefaults fills a struct from its default tags. A field without the tag
// keeps its zero value.
func setDefaults(v reflect.Value) {
	for f, fv := range valuesOf(v) {
		if fv.Kind() == reflect.Struct {
			setDefaults(fv)
			continue
		}
		def, ok := f.Tag.Lookup("default")
		if !ok {
			continue
		}
		if c := setText(fv, f.Tag, def); c != nil {
			panic("config: default of " + f.Name + ": " + c.what)
		}
	}
}
