package api

import (
	"net/http"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/verdict"
)

// referencePath is where the API describes itself.
const referencePath = "/api/v1/reference"

// Reference is what a query can be made of, and what answers mean.
type Reference struct {
	Filters    []FilterDoc `json:"filters"`
	Keys       []Doc       `json:"keys"`    // to group by
	Sorts      []string    `json:"sorts"`   //
	Numbers    []NumberDoc `json:"numbers"` // of rows, which a chart can show
	Parameters []Doc       `json:"parameters"`
	Paths      []Doc       `json:"paths"`
	Verdicts   []RuleDoc   `json:"verdicts"`
}

// Doc is a name and what it means.
type Doc struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
}

// FilterDoc is a field of filters.
type FilterDoc struct {
	Doc
	Aliases []string `json:"aliases"`
	Example string   `json:"example"`
}

// NumberDoc is a number of rows, under the name by which they are sorted.
type NumberDoc struct {
	Doc
	Path    string `json:"path"` // in the JSON of a row: pdm.server.p50_ns
	Unit    string `json:"unit"`
	Sum     bool   `json:"sum"`     // it adds up, so that there is a rate of it
	Counter bool   `json:"counter"` // the parameter sums may name it
}

// RuleDoc is a rule of verdicts.
type RuleDoc struct {
	Doc
	Inputs    string `json:"inputs"`
	Threshold string `json:"threshold"`
}

// reference answers with what is known when the program starts.
func (s *Server) reference(w http.ResponseWriter, _ *http.Request) {
	out := Reference{Sorts: query.SortNames()}
	for _, f := range filter.Fields() {
		out.Filters = append(out.Filters, FilterDoc{Doc{f.Name, f.Doc}, append([]string{}, f.Aliases...), f.Example})
	}
	for _, k := range query.KeyDocs() {
		out.Keys = append(out.Keys, Doc(k))
	}
	for _, p := range parameters {
		out.Parameters = append(out.Parameters, Doc(p))
	}
	out.Numbers = numbers()
	for _, e := range append(Endpoints(), s.endpoints()...) {
		out.Paths = append(out.Paths, Doc{e.Path, e.Doc})
	}
	for _, r := range verdict.RuleDocs() {
		out.Verdicts = append(out.Verdicts, RuleDoc{Doc{string(r.Kind), r.Says}, r.Inputs, r.Threshold})
	}
	s.writeJSON(w, out)
}

// numbers are those that rows are sorted by.
func numbers() (list []NumberDoc) {
	for _, name := range query.SortNames() {
		if f := flow.FieldNamed(name); f != nil && (f.Kind.Number() || f.Kind == flow.Signed) {
			list = append(list, NumberDoc{Doc{name, f.Doc}, f.Name, f.Unit, f.Merge == flow.MergeSum, f.Counter != nil})
		}
	}
	return list
}

// endpoints are those of stages.
func (s *Server) endpoints() (list []Endpoint) {
	for _, one := range s.streams {
		list = append(list, Endpoint{one.Path, one.Doc})
	}
	for _, one := range s.deps.Pages {
		list = append(list, Endpoint{one.Path, one.Doc})
	}
	return list
}
