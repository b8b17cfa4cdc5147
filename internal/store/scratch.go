package store

import "github.com/waymark-net/waymark/internal/query"

// scratch is the memory that queries of one interval use, one after the other: in a
// flood, that of each would be garbage of many megabytes.
type scratch struct {
	seen      []int32
	sightings []sighting
	flows     []int32
	items     []item
	collect   query.Scratch
}
