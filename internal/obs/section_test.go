package obs

import (
	"encoding/json"
	"testing"
)

// A section is a field of the status, and is found again by its type, also after
// it went over the API to a client that does not know it.
func TestSections(t *testing.T) {
	type toy struct {
		Packets uint64   `json:"packets"`
		Names   []string `json:"names"`
	}
	sent := Status{Host: "alpha", Sections: []Section{{Name: "toy", Value: &toy{Packets: 7}}}}
	FillLists(&sent)
	first, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	var raw struct {
		Host string `json:"host"`
		Toy  *toy   `json:"toy"`
	}
	if err := json.Unmarshal(first, &raw); err != nil || raw.Host != "alpha" || raw.Toy == nil || raw.Toy.Packets != 7 || raw.Toy.Names == nil {
		t.Errorf("%s: %+v, %v", first, raw, err)
	}
	var got Status
	if err := json.Unmarshal(first, &got); err != nil {
		t.Fatal(err)
	}
	second, err := json.Marshal(&got)
	if err != nil || string(second) != string(first) {
		t.Errorf("sent on: %s, %v\nwant %s", second, err, first)
	}
	for _, s := range []*Status{&sent, &got} {
		if one := SectionOf[toy](s, "toy"); one == nil || one.Packets != 7 {
			t.Errorf("section: %+v", one)
		}
		if one := SectionOf[toy](s, "none"); one != nil {
			t.Errorf("a section that is not there: %+v", one)
		}
	}
	if list := got.Sections; len(list) != 1 {
		t.Errorf("%d sections", len(list))
	}
}
