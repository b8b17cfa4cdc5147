package store

import (
	"encoding/binary"
	"math/bits"
)

// A column of a block is written as its width, its least number, and what each number has above that, in so many bytes
// each; 0: all are the same. Behind the last block are bytes that are read with the last number.

// slack is how many these are.
const slack = 8

// blockBytes is the least that a block takes.
func blockBytes(columns int) int { return 2 * columns }

// append writes the rows.
func (b *Block) append(to []byte) []byte {
	for i := range b.columns {
		to = b.columns[i].append(to, b.rows)
	}
	return to
}

func (c *numbers) append(to []byte, rows int) []byte {
	least, most := c.bounds(rows)
	width := (bits.Len64(most-least) + 7) / 8
	to = appendUvarint(append(to, byte(width)), least)
	if width == 0 {
		return to
	}
	n := len(to)
	to = append(to, make([]byte, width*rows+slack)...)
	at := to[n:]
	for _, number := range c.list[:rows] {
		binary.LittleEndian.PutUint64(at, number-least)
		at = at[width:]
	}
	return to[:n+width*rows]
}

// read reads a column.
func (r *reader) numbers(c *numbers, rows int) {
	width := int((*r)[0])
	*r = (*r)[1:]
	least := r.uvarint()
	if width == 0 {
		c.constant(least, rows)
		return
	}
	mask := ^uint64(0) >> (64 - 8*width)
	at := (*r)[:width*rows+slack]
	for i := range c.list[:rows] {
		c.list[i] = binary.LittleEndian.Uint64(at)&mask + least
		at = at[width:]
	}
	c.same = false
	*r = (*r)[width*rows:]
}

// block reads rows of an interval. columns are what columns there are, in their order; others are 0.
func (r *reader) block(b *Block, iv *interval, rows int, columns []int) error {
	b.iv, b.rows = iv, rows
	if len(columns) < len(b.columns) {
		for i := range b.columns {
			b.columns[i].constant(0, rows)
		}
	}
	for _, i := range columns {
		r.numbers(&b.columns[i], rows)
	}
	return b.check()
}
