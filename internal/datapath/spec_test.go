package datapath

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// A map, constant or program that an object lacks is an error that names both.
func TestObjectsThatLackSomething(t *testing.T) {
	d := New(Config{MaxEntries: 64}, slog.New(slog.DiscardHandler))
	if err := d.checkStages(); err != nil {
		t.Fatal(err)
	}
	whole, err := Ingress.Load()
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what, name string, without func(*ebpf.CollectionSpec)) bool {
		p := *Ingress
		p.Load = func() (*ebpf.CollectionSpec, error) {
			spec, err := Ingress.Load()
			if err == nil {
				without(spec)
			}
			return spec, err
		}
		_, err := d.prepare(p.Object, p.loadChecked, variant{}, Ingress.has)
		if err == nil {
			return false
		}
		if want := "object tc.bpf.c has no " + what + " " + name; !strings.Contains(err.Error(), want) {
			t.Errorf("without the %s %s: %v, want %q", what, name, err, want)
		}
		return true
	}
	var needed []string
	for _, name := range slices.Sorted(maps.Keys(whole.Maps)) {
		if refused("map", name, func(s *ebpf.CollectionSpec) { delete(s.Maps, name) }) {
			needed = append(needed, name)
		}
	}
	if want := []string{"batches", "cached_counts", "evicted", "flows"}; !slices.Equal(needed, want) {
		t.Errorf("maps that are sized: %v, want %v", needed, want)
	}
	needed = nil
	for _, name := range slices.Sorted(maps.Keys(whole.Variables)) {
		if refused("constant", name, func(s *ebpf.CollectionSpec) { delete(s.Variables, name) }) {
			needed = append(needed, name)
		}
	}
	if len(needed) < 8 {
		t.Errorf("constants that are set: %v", needed)
	}
	if !refused("program", Ingress.Name, func(s *ebpf.CollectionSpec) { delete(s.Programs, Ingress.Name) }) {
		t.Error("an object without its program was loaded")
	}
}

// A stage that owns a map which no object has, or which another stage owns, is
// refused before anything is attached.
func TestStagesThatOwnNoMap(t *testing.T) {
	for _, c := range []struct{ name, owned, want string }{
		{"missing", "no_such_map", "stage toy: no object has the map no_such_map"},
		{"twice", "flows", "stages flow and toy both own the map flows"},
	} {
		d := New(Config{MaxEntries: 64, Stages: []*Stage{{Name: "toy", Maps: []string{c.owned}}}}, slog.New(slog.DiscardHandler))
		if err := d.Load(); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		d.Close()
	}
}

// TestDisabledFeaturesAreNotVerified: kernels before 6.8 verify functions that nothing calls, unless they return at once.
func TestDisabledFeaturesAreNotVerified(t *testing.T) {
	const most = 40_000 // with all features: more than 100,000
	d := New(Config{MaxEntries: 64}, slog.New(slog.DiscardHandler))
	if err := d.Load(); err != nil {
		t.Fatalf("%+v", err)
	}
	defer d.Close()
	for c, p := range d.loaded {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := info.VerifiedInstructions(); ok && n > most {
			t.Errorf("%s, no link header %t: the verifier processed %d instructions, want at most %d", c.program.Name, c.noLink, n, most)
		}
	}
}
