package obs

import "reflect"

// FillLists makes every nil slice in what v points to an empty one: in JSON, a
// list without entries is [], not null.
func FillLists(v any) { fillLists(reflect.ValueOf(v)) }

func fillLists(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			fillLists(v.Elem())
		}
	case reflect.Struct:
		for _, f := range v.Fields() {
			fillLists(f)
		}
	case reflect.Slice:
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			fillLists(v.Index(i))
		}
	}
}
