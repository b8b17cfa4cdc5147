// Package digest numbers digests of keys. Input: digests, and the numbers that were given. Output: Table, a hash table of 16 bytes
// for each. Callers: queries and the history on disk, which then have what belongs to a key in lists.
package digest

import "cmp"

// Digest stands for a key: different for different ones but with a probability of 2⁻¹²⁸, whoever chose them.
type Digest [2]uint64

// Compare orders digests.
func (d Digest) Compare(o Digest) int {
	return cmp.Or(cmp.Compare(d[0], o[0]), cmp.Compare(d[1], o[1]))
}

// Table numbers digests in the order in which they are added. 96 bits stand for one. The zero Table is empty.
type Table struct {
	cells []cell
	n     int
}

// cell is a place of a table: parts of a digest, and its number from 1 on; 0: it is free. It takes 16 bytes, four to a line of the
// processor's cache.
type cell struct {
	high   uint64
	low    uint32
	number int32
}

func (c *cell) is(d Digest) bool { return c.high == d[0] && c.low == uint32(d[1]) }

// Len is how many digests there are.
func (t *Table) Len() int { return t.n }

// Find writes the number of each digest; −1: it has none. Nothing else is done between two of them, so that the processor waits for
// several at the same time.
func (t *Table) Find(list []Digest, numbers []int32) {
	if t.n == 0 {
		for i := range numbers {
			numbers[i] = -1
		}
		return
	}
	cells, mask := t.cells, uint64(len(t.cells)-1)
	for i := range list {
		d := list[i]
		at := d[0] & mask
		for cells[at].number != 0 && !cells[at].is(d) {
			at = (at + 1) & mask
		}
		numbers[i] = cells[at].number - 1
	}
}

// One is Find of one digest.
func (t *Table) One(d Digest) int32 {
	var number [1]int32
	t.Find([]Digest{d}, number[:])
	return number[0]
}

// Add gives a digest that has none its number.
func (t *Table) Add(d Digest) int32 {
	if 2*t.n >= len(t.cells) {
		t.grow()
	}
	t.n++
	t.put(cell{d[0], uint32(d[1]), int32(t.n)})
	return int32(t.n) - 1
}

func (t *Table) grow() {
	old := t.cells
	t.cells = make([]cell, max(1<<10, 2*len(old)))
	for _, c := range old {
		if c.number != 0 {
			t.put(c)
		}
	}
}

func (t *Table) put(c cell) {
	mask := uint64(len(t.cells) - 1)
	at := c.high & mask
	for t.cells[at].number != 0 {
		at = (at + 1) & mask
	}
	t.cells[at] = c
}
