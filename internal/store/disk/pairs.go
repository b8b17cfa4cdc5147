package disk

import "math/bits"

// pairCell is a place: one more than the pair, and its number.
type pairCell [2]uint64

// pairs numbers the pairs of a group and a code of a block, in the order in which they come.
type pairs struct {
	memory *memory
	cells  []pairCell // of each: one more than the pair, 0 if it is free; and its number
	shift  int
	n      int
}

func newPairs(m *memory) *pairs {
	p := &pairs{memory: m}
	p.reserve(1 << 12)
	return p
}

// reserve has so many cells, a power of two.
func (p *pairs) reserve(cells int) {
	p.cells = p.memory.places(cells)
	p.shift = 64 - bits.Len(uint(cells-1))
	clear(p.cells)
}

// number is that of a pair, which is new or known.
func (p *pairs) number(pair uint64) int32 {
	c := p.find(pair + 1)
	if c[0] == 0 {
		if 2*p.n >= len(p.cells) {
			p.grow()
			c = p.find(pair + 1)
		}
		*c = pairCell{pair + 1, uint64(p.n)}
		p.n++
	}
	return int32(c[1])
}

// find is where a key is or belongs. The factor is a secret of this process: whoever chooses what is grouped does not know
// which pairs share a cell.
func (p *pairs) find(key uint64) *pairCell {
	at, mask := int(key*secrets[2]>>p.shift), len(p.cells)-1
	for p.cells[at][0] != 0 && p.cells[at][0] != key {
		at = (at + 1) & mask
	}
	return &p.cells[at]
}

func (p *pairs) grow() {
	old := p.cells
	p.reserve(4 * len(old))
	for i := range old {
		if old[i][0] != 0 {
			*p.find(old[i][0]) = old[i]
		}
	}
}
