// Package order sorts the rows of answers. slices.SortFunc is compiled once more for each type of row,
// which takes 15 to 25 KB of the binary each time; this takes a few hundred bytes.
package order

import "sort"

// By sorts s in place by compare, which returns what cmp.Compare does. Equal elements keep their order.
func By[T any](s []T, compare func(a, b T) int) {
	sort.SliceStable(s, func(i, j int) bool { return compare(s[i], s[j]) < 0 })
}
