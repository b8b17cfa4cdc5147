package store

import (
	"slices"
	"unsafe"

	"github.com/waymark-net/waymark/internal/query"
)

// RecordBytes is what a record of the history takes of memory: its row, and half
// of one for intervals that a query still reads after they left.
const RecordBytes = uint64(unsafe.Sizeof(row{}) * 3 / 2)

// QueryBytes is what a query takes at most for each record of the history: a row of
// the answer, where its packets were seen, what tells its row, and its places in lists.
const QueryBytes = uint64(unsafe.Sizeof(query.Row{})+unsafe.Sizeof(item{})+unsafe.Sizeof(sighting{})) + 5*4

// rowsChunk is how many rows are allocated at once.
const rowsChunk = 1 << 10

// rows is a list that grows without a copy of all it holds.
type rows [][]row

func (r rows) len() int {
	if len(r) == 0 {
		return 0
	}
	return (len(r)-1)*rowsChunk + len(r[len(r)-1])
}

// at is valid until the next add.
func (r rows) at(i int) *row { return &r[i/rowsChunk][i%rowsChunk] }

func (r *rows) add(w row) *row {
	switch n := len(*r); {
	case n == 0: // most intervals of a small host fit in a part of one: it grows
		*r = append(*r, nil)
	case len((*r)[n-1]) == rowsChunk:
		*r = append(*r, make([]row, 0, rowsChunk))
	}
	last := &(*r)[len(*r)-1]
	if len(*last) == cap(*last) { // not by append: it would allocate more than a chunk
		*last = append(make([]row, 0, min(rowsChunk, max(8, 2*len(*last)))), *last...)
	}
	*last = append(*last, w)
	return &(*last)[len(*last)-1]
}

// grow takes memory for n rows, of a list without any.
func (r *rows) grow(n int) {
	if n > 0 {
		*r = append(*r, make([]row, 0, min(n, rowsChunk)))
	}
}

// clip gives back what the last chunk does not need.
func (r rows) clip() {
	if n := len(r); n > 0 && cap(r[n-1]) > len(r[n-1])+len(r[n-1])/8 {
		r[n-1] = append(make([]row, 0, len(r[n-1])), slices.Clip(r[n-1])...)
	}
}
