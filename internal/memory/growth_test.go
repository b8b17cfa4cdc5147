package memory

import (
	"runtime/debug"
	"testing"
)

// TestCollectSooner: the least that somebody asked for counts, whoever ends first, and what was set before is set again.
func TestCollectSooner(t *testing.T) {
	now := func() int {
		n := debug.SetGCPercent(100)
		debug.SetGCPercent(n)
		return n
	}
	is := func(when string, want int) {
		t.Helper()
		if n := now(); n != want {
			t.Errorf("%s: %d %%, want %d", when, n, want)
		}
	}
	for _, usual := range []int{100, 40, -1} {
		before := debug.SetGCPercent(usual)
		first := CollectSooner(50)
		is("one", min(usual, 50))
		second := CollectSooner(25)
		is("two", min(usual, 25))
		first()
		is("the second alone", min(usual, 25))
		third := CollectSooner(50)
		second()
		is("the third alone", min(usual, 50))
		third()
		is("nobody", usual)
		debug.SetGCPercent(before)
	}
}
