package engine

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/gate/rules/rulestest"
	"github.com/waymark-net/waymark/test/soak"
)

// TestTablesOfManyRules: likewise of sets whose rows have words, in groups of one, two and four.
func TestTablesOfManyRules(t *testing.T) {
	found := 0
	for i := range soak.Times(4, 100) {
		n := []int{65, 4096, 4097, 10_000, int(MaxRules)}[i%5]
		draw := rapid.Custom(func(r *rapid.T) int {
			frames := rulestest.Frames(r, 12)
			rs := rulestest.Ruleset(r, frames, []string{"count"}, now)
			if len(rs.Rules) == 0 {
				return 0
			}
			return findAll(t, rulestest.Many(r, rs, n), frames)
		})
		found += draw.Example(i)
	}
	if found < 10000 {
		t.Errorf("only %d rules matched", found)
	}
}
