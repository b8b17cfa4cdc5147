package query

import "slices"

// top keeps the first rows in the order of a query, no more than its limit.
type top struct {
	rank    func(*Row) int64 // nil: there is none
	compare func(a, b *Row) int
	limit   int     // 0: none
	rows    []Row   // in no order: they are large, and stay where they are
	order   []int32 // of rows; once there are as many as the limit: a heap, the last on top
}

// Scratch is memory that plans use one after the other: in a flood, that of each would be
// garbage of many megabytes. The rows of an answer are valid until its next use.
type Scratch struct {
	rows  []Row
	order []int32
}

// newTop expects at most so many rows; 0: not known.
func newTop(p *Plan, most int, sc *Scratch) *top {
	limit := most
	if p.Limit > 0 && (limit == 0 || p.Limit < limit) {
		limit = p.Limit
	}
	reserved := limit
	if most == 0 {
		reserved = min(limit, mostReserved)
	}
	t := &top{limit: limit, rows: Empty(&sc.rows, reserved), order: Empty(&sc.order, reserved)}
	t.rank, t.compare = p.compare()
	return t
}

// mostReserved is for how many rows there is memory before the first comes.
const mostReserved = 1 << 10

// Empty returns a list with room for n elements, in the memory of the one before.
func Empty[T any](of *[]T, n int) []T {
	if cap(*of) < n {
		*of = make([]T, 0, n)
	}
	return (*of)[:0]
}

// offer takes a copy of a row if it is among the first.
func (t *top) offer(w *Row) {
	if t.rank != nil {
		w.rank = t.rank(w)
	}
	if t.limit == 0 || len(t.rows) < t.limit {
		t.order = append(t.order, int32(len(t.rows)))
		if t.rows = append(t.rows, *w); len(t.rows) == t.limit {
			for i := t.limit/2 - 1; i >= 0; i-- {
				t.siftDown(i)
			}
		}
		return
	}
	if last := &t.rows[t.order[0]]; t.compare(w, last) < 0 {
		*last = *w
		t.siftDown(0)
	}
}

// siftDown restores the heap below i after the row there changed.
func (t *top) siftDown(i int) {
	after := func(a, b int) bool { return t.compare(&t.rows[t.order[a]], &t.rows[t.order[b]]) > 0 }
	for child := 2*i + 1; child < len(t.order); child = 2*i + 1 {
		if child+1 < len(t.order) && after(child+1, child) {
			child++
		}
		if !after(child, i) {
			return
		}
		t.order[i], t.order[child] = t.order[child], t.order[i]
		i = child
	}
}

// sorted returns the rows in order; there are no more to be offered.
func (t *top) sorted() []Row {
	slices.SortFunc(t.order, func(a, b int32) int { return t.compare(&t.rows[a], &t.rows[b]) })
	// Each circle of places that exchange their rows is moved on by one.
	for i := range t.order {
		if t.order[i] == int32(i) {
			continue
		}
		first, to := t.rows[i], i
		for {
			from := int(t.order[to])
			t.order[to] = int32(to)
			if from == i {
				break
			}
			t.rows[to] = t.rows[from]
			to = from
		}
		t.rows[to] = first
	}
	return t.rows
}
