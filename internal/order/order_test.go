package order_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/order"
)

// TestBy: the result is that of the standard library's stable sort.
func TestBy(t *testing.T) {
	type row struct{ key, at int }
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOf(rapid.IntRange(0, 9)).Draw(t, "keys")
		rows := make([]row, len(keys))
		for i, k := range keys {
			rows[i] = row{k, i}
		}
		want := slices.Clone(rows)
		byKey := func(a, b row) int { return cmp.Compare(a.key, b.key) }
		slices.SortStableFunc(want, byKey)
		order.By(rows, byKey)
		if !slices.Equal(rows, want) {
			t.Fatalf("%v, want %v", rows, want)
		}
	})
}
