package datapath

import (
	"reflect"

	"github.com/cilium/ebpf"
)

// Total reads an element of a map of values per CPU, and sums it: a counter, or a struct of counters.
func Total[T any](m *ebpf.Map, key any) (sum T, err error) {
	var perCPU []T
	if err := m.Lookup(key, &perCPU); err != nil {
		return sum, err
	}
	return Sum(perCPU), nil
}

// Sum adds the values of all processors, field by field. Counters are uint64, or structs or arrays of them; the sum of
// what else a value holds, such as a state, is zero.
func Sum[T any](perCPU []T) (sum T) {
	to := reflect.ValueOf(&sum).Elem()
	for i := range perCPU {
		add(to, reflect.ValueOf(&perCPU[i]).Elem())
	}
	return sum
}

func add(to, from reflect.Value) {
	switch to.Kind() {
	case reflect.Struct:
		for i := range to.NumField() {
			if to.Type().Field(i).Name != "_" { // layout and padding
				add(to.Field(i), from.Field(i))
			}
		}
	case reflect.Array:
		for i := range to.Len() {
			add(to.Index(i), from.Index(i))
		}
	case reflect.Uint64:
		to.SetUint(to.Uint() + from.Uint())
	}
}
