package store

import "slices"

// window is the intervals that a query is about, whose rows are numbered through.
type window struct {
	intervals []*interval
	firsts    []int // the number of the first row of each, and of one more
}

func newWindow(intervals []*interval) *window {
	w := &window{intervals: intervals, firsts: make([]int, 1, len(intervals)+1)}
	for i, iv := range intervals {
		w.firsts = append(w.firsts, w.firsts[i]+iv.rows.len())
	}
	return w
}

func (w *window) len() int { return w.firsts[len(w.intervals)] }

// find is the interval of a row, and its number there. Of intervals that begin with
// the same number all but the last are empty.
func (w *window) find(n int32) (*interval, int) {
	i, _ := slices.BinarySearch(w.firsts, int(n)+1)
	return w.intervals[i-1], int(n) - w.firsts[i-1]
}
