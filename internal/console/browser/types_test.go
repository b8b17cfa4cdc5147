package browser

import (
	"cmp"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	running "github.com/waymark-net/waymark/internal/agent"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/topology/timeline"
	"github.com/waymark-net/waymark/internal/verdict"
)

var update = flag.Bool("update", false, "write what is generated")

const typesFile = "../../../web/src/types.ts"

// answers are what the console reads.
var answers = []any{
	api.Answer{}, api.Completion{}, api.Reference{}, verdict.Answer{}, obs.Status{}, gate.Rules{}, gate.Bans{}, running.Examined{}, timeline.Graph{}, timeline.Use{}, ioamservice.Paths{},
}

// The types of the console are those of the answers: the table of fields, and what Go writes as JSON.
func TestTypes(t *testing.T) {
	want := typescript()
	if *update {
		if err := os.WriteFile(typesFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(typesFile)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the code says: run 'make docs' (%v)", typesFile, err)
	}
}

// writer writes each type once, under the name that it has in Go.
type writer struct {
	names map[reflect.Type]string
	text  map[string]string
}

func typescript() string {
	w := &writer{map[reflect.Type]string{}, map[string]string{}}
	for _, v := range answers {
		w.typeOf(reflect.TypeOf(v))
	}
	out := "// Written by `make docs` from the types of the answers.\n"
	names := make([]string, 0, len(w.text))
	for name := range w.text {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out += "\n" + w.text[name]
	}
	return out + "\n" + rowType()
}

// rowType is the row of an answer, from the table of fields.
func rowType() string {
	out := "// Row has what its keys and records have.\nexport interface Row {\n"
	object := ""
	for _, f := range rowFields() {
		inner, key := "", f.Name
		if i := strings.LastIndexByte(f.Name, '.'); i >= 0 {
			inner, key = f.Name[:i], f.Name[i+1:]
		}
		out += move(object, inner)
		object = inner
		out += fmt.Sprintf("%s%s?: %s;\n", indent(object), key, kindType(f.Kind))
	}
	return out + move(object, "") + "}\n"
}

// rowFields are all fields that rows of any keys have, those of an object together.
func rowFields() []api.RowField {
	fields := api.RowFields(slices.Concat(query.ByFlow().Keys, []query.Key{{Name: "in"}, {Name: "out"}}), time.Second)
	for i := range flow.Fields {
		f := &flow.Fields[i]
		if !slices.ContainsFunc(fields, func(r api.RowField) bool { return r.Name == f.Name }) {
			fields = append(fields, api.RowField{Name: f.Name, Kind: f.Kind})
		}
	}
	slices.SortStableFunc(fields, func(a, b api.RowField) int { return cmp.Compare(sortName(a.Name), sortName(b.Name)) })
	return fields
}

// sortName has the objects behind what is in none.
func sortName(name string) string {
	if !strings.Contains(name, ".") {
		return " " + name
	}
	parts := strings.Split(name, ".")
	for i := range parts[:len(parts)-1] {
		parts[i] = "~" + parts[i]
	}
	return strings.Join(parts, ".")
}

func indent(object string) string {
	if object == "" {
		return "\t"
	}
	return strings.Repeat("\t", strings.Count(object, ".")+2)
}

// move closes objects and opens others.
func move(from, to string) (out string) {
	a, b := parts(from), parts(to)
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	for i := len(a); i > same; i-- {
		out += strings.Repeat("\t", i) + "};\n"
	}
	for i := same; i < len(b); i++ {
		out += strings.Repeat("\t", i+1) + b[i] + "?: {\n"
	}
	return out
}

func parts(object string) []string {
	if object == "" {
		return nil
	}
	return strings.Split(object, ".")
}

func kindType(k flow.Kind) string {
	switch {
	case k.Quoted():
		return "string"
	case k == flow.Flag:
		return "boolean"
	case k == flow.Pairs:
		return "[number, number][]"
	}
	return "number"
}

// typeOf is a type in TypeScript; one with a name is written once.
func (w *writer) typeOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[api.Row]():
		return "Row"
	case t == reflect.TypeFor[time.Duration]():
		return "number"
	case t == reflect.TypeFor[time.Time]() || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return "string"
	case t == reflect.TypeFor[json.RawMessage]():
		return "unknown"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.typeOf(t.Elem()) + " | null"
	case reflect.Slice, reflect.Array:
		return w.typeOf(t.Elem()) + "[]"
	case reflect.Map:
		return "Record<string, " + w.typeOf(t.Elem()) + ">"
	case reflect.Struct:
		return w.object(t)
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	}
	return "number"
}

// object writes an interface; where another package has the name, its own stands before it.
func (w *writer) object(t reflect.Type) string {
	if name, ok := w.names[t]; ok {
		return name
	}
	name := t.Name()
	if taken := w.text[name]; taken != "" {
		at := strings.Split(t.PkgPath(), "/")
		name = strings.ToUpper(at[len(at)-1][:1]) + at[len(at)-1][1:] + name
	}
	w.names[t], w.text[name] = name, "-"
	w.text[name] = "export interface " + name + " {\n" + w.members(t) + "}\n"
	return name
}

func (w *writer) members(t reflect.Type) (out string) {
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		key, options, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous && key == "":
			out += w.members(f.Type)
			continue
		case key == "-" || !f.IsExported() || tag == "":
			continue
		}
		optional := ""
		if strings.Contains(options, "omit") {
			optional = "?"
		}
		out += fmt.Sprintf("\t%s%s: %s;\n", key, optional, strings.TrimSuffix(w.typeOf(f.Type), " | null")+nullable(f.Type, optional))
	}
	return out
}

func nullable(t reflect.Type, optional string) string {
	if t.Kind() == reflect.Pointer && optional == "" {
		return " | null"
	}
	return ""
}
