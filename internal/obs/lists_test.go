package obs

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestNoNulls: a list without entries is [] at every depth.
func TestNoNulls(t *testing.T) {
	s := Status{Interfaces: []Interface{{}}, Exporters: []Exporter{{}}, Sections: []Section{{Name: "toy", Value: &struct{ Names []string }{}}}}
	FillLists(&s)
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "null") || strings.Count(string(b), "[]") < 8 {
		t.Errorf("null in %s", b)
	}
}
