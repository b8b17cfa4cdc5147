package flow

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestReopen(t *testing.T) {
	for _, tt := range []struct{ before, from, to, want string }{
		{`{"a":1`, "", "", `{"a":1`},
		{`{"a":1`, "", "pdm", `{"a":1,"pdm":{`},
		{`{`, "", "pdm.server", `{"pdm":{"server":{`},
		{`{"pdm":{"sent":1`, "pdm", "pdm.server", `{"pdm":{"sent":1,"server":{`},
		{`{"pdm":{"server":{"count":1`, "pdm.server", "pdm.network", `{"pdm":{"server":{"count":1},"network":{`},
		{`{"pdm":{"server":{"count":1`, "pdm.server", "pdm", `{"pdm":{"server":{"count":1}`},
		{`{"pdm":{"server":{"count":1`, "pdm.server", "", `{"pdm":{"server":{"count":1}}`},
		{`{"rtt":{"a":1`, "rtt", "pdm.server", `{"rtt":{"a":1},"pdm":{"server":{`},
		{`{"pd":{"a":1`, "pd", "pdm", `{"pd":{"a":1},"pdm":{`},
	} {
		if got := string(Reopen([]byte(tt.before), tt.from, tt.to)); got != tt.want {
			t.Errorf("from %q to %q: %s, want %s", tt.from, tt.to, got, tt.want)
		}
	}
}

// Whatever stands in which object, in order of objects: it is one JSON document,
// and each value is found where it was put.
func TestObjectsAreFoundWhereTheyWereOpened(t *testing.T) {
	objects := []string{"", "a", "a.b", "a.b.c", "a.d", "ab", "ab.b"}
	rapid.Check(t, func(t *rapid.T) {
		b, open := []byte{'{'}, ""
		chosen := map[string]bool{}
		for _, object := range objects {
			if !rapid.Bool().Draw(t, object) {
				continue
			}
			chosen[object] = true
			b = Reopen(b, open, object)
			open = object
			if b[len(b)-1] != '{' {
				b = append(b, ',')
			}
			b = append(b, `"value":"`+object+`"`...)
		}
		b = append(Reopen(b, open, ""), '}')
		if !json.Valid(b) {
			t.Fatalf("no JSON: %s", b)
		}
		all, err := ParseObjects(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			values, err := all.Get(object)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := string(values["value"]), `"`+object+`"`; chosen[object] && got != want || !chosen[object] && got != "" {
				t.Fatalf("in %q is %s: %s", object, got, b)
			}
		}
	})
}
