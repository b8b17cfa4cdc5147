package store

// scratch is the memory that queries of one interval use, one after the other: in a
// flood, that of each would be garbage of many megabytes.
type scratch struct {
	seen      []int32
	sightings []sighting
	flows     []int32
	items     []item
	rows      []Row
	order     []int32
}

// empty returns a list with room for n elements, in the memory of the one before.
func empty[T any](of *[]T, n int) []T {
	if cap(*of) < n {
		*of = make([]T, 0, n)
	}
	return (*of)[:0]
}
