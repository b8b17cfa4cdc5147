package bench

import (
	"testing"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

// TestRules: both ways drop all packets by the last of several rules, which measure checks, and large rule sets are ones.
func TestRules(t *testing.T) {
	r := &RulesReport{Rounds: 1}
	for _, what := range []string{manyRules, manyMembers} {
		if err := r.measure(t.Context(), Default(), what, 20); err != nil {
			t.Fatalf("%s: %+v", what, err)
		}
	}
	if want := 4 - 2*len(r.Absent); len(r.Points) != want {
		t.Errorf("%d ways measured, want %d: %+v", len(r.Points), want, r)
	}
	for _, text := range []string{textOfRules(1000), textOfSet(100_000)} {
		if _, _, err := rules.Parse("bench", text, rules.Options{}); err != nil {
			t.Error(err)
		}
	}
	if err := r.WriteText(t.Output()); err != nil {
		t.Error(err)
	}
}
