package store

import "slices"

// window is the intervals that a query is about, whose rows are numbered through.
type window struct {
	intervals []*interval
	firsts    []int // the number of the first row of each, and of one more
	// repeated is what was stored with each, where it was read from disk; nil: it was not.
	repeated [][]uint64
}

func newWindow(intervals []*interval) *window {
	w := &window{firsts: make([]int, 1, len(intervals)+1)}
	for _, iv := range intervals {
		w.add(iv)
	}
	return w
}

func (w *window) add(iv *interval) {
	w.intervals = append(w.intervals, iv)
	w.firsts = append(w.firsts, w.len()+iv.rows.len())
}

func (w *window) len() int { return w.firsts[len(w.firsts)-1] }

// find is the interval of a row, and its number there. Of intervals that begin with
// the same number all but the last are empty.
func (w *window) find(n int32) (*interval, int) {
	i, _ := slices.BinarySearch(w.firsts, int(n)+1)
	return w.intervals[i-1], int(n) - w.firsts[i-1]
}
