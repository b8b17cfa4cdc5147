package disk

import (
	"math/bits"
	"math/rand/v2"
)

// table numbers keys of some words each, in the order in which they are added. 96 bits of a digest
// stand for a key, whoever chose it: its secret is of this process.
type table struct {
	width int
	words []uint64 // of all keys
	cells []cell
	n     int
}

// cell is a place of a table: parts of a digest, and the number of the key from 1 on; 0: it is free.
// It takes 16 bytes, four to a line of the processor's cache.
type cell struct {
	high   uint64
	low    uint32
	number int32
}

func (c *cell) is(d digest) bool { return c.high == d[0] && c.low == uint32(d[1]) }

type digest [2]uint64

var secrets = [4]uint64{rand.Uint64(), rand.Uint64(), rand.Uint64() | 1, rand.Uint64() | 1}

func digestOf(key []uint64) digest {
	a, b := secrets[0], secrets[1]
	for _, w := range key {
		high, low := bits.Mul64(a^w, secrets[2])
		a = high ^ low
		high, low = bits.Mul64(b^w, secrets[3])
		b = high ^ low
	}
	return digest{a, b}
}

// find writes the number of each digest; −1: it has none. Nothing else is done between two of them,
// so that the processor waits for several at the same time.
func (t *table) find(list []digest, numbers []int32) {
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

// one is find of one digest.
func (t *table) one(d digest) int32 {
	var number [1]int32
	t.find([]digest{d}, number[:])
	return number[0]
}

// add gives a key that has none its number.
func (t *table) add(key []uint64, d digest) int32 {
	if 2*t.n >= len(t.cells) {
		t.grow()
	}
	t.n++
	t.put(cell{d[0], uint32(d[1]), int32(t.n)})
	t.words = append(t.words, key...)
	return int32(t.n) - 1
}

// key is that of a number.
func (t *table) key(number int32) []uint64 { return t.words[int(number)*t.width:][:t.width] }

func (t *table) grow() {
	old := t.cells
	t.cells = make([]cell, max(1<<10, 2*len(old)))
	for _, c := range old {
		if c.number != 0 {
			t.put(c)
		}
	}
}

func (t *table) put(c cell) {
	mask := uint64(len(t.cells) - 1)
	at := c.high & mask
	for t.cells[at].number != 0 {
		at = (at + 1) & mask
	}
	t.cells[at] = c
}
