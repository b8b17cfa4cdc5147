package store

import "slices"

// top keeps the first rows in the order of a query, no more than its limit.
type top struct {
	rank    func(*Row) int64 // nil: there is none
	compare func(a, b *Row) int
	limit   int
	rows    []Row   // in no order: they are large, and stay where they are
	order   []int32 // of rows; once there are as many as the limit: a heap, the last on top
}

// newTop expects at most so many rows.
func newTop(q *Query, most int, sc *scratch) *top {
	if q.Limit > 0 {
		most = min(most, q.Limit)
	}
	t := &top{limit: most, rows: empty(&sc.rows, most), order: empty(&sc.order, most)}
	t.rank, t.compare = q.compare()
	return t
}

// offer takes a copy of a row if it is among the first.
func (t *top) offer(w *Row) {
	if t.rank != nil {
		w.rank = t.rank(w)
	}
	if len(t.rows) < t.limit {
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
