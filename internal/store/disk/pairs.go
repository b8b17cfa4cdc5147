package disk

import "math/bits"

// pairs numbers the pairs of a group and a code of a block, in the order in which they come.
type pairs struct {
	memory  *memory
	keys    []uint64 // each with one more than the pair; 0: the cell is free
	numbers []int32
	shift   int
	n       int
}

func newPairs(m *memory) *pairs {
	p := &pairs{memory: m}
	p.reserve(1 << 12)
	return p
}

// reserve has so many cells, a power of two.
func (p *pairs) reserve(cells int) {
	p.keys, p.numbers = p.memory.numbers(cells), p.memory.codes(cells)
	p.shift = 64 - bits.Len(uint(cells-1))
	clear(p.keys)
}

// number is that of a pair, which is new or known.
func (p *pairs) number(pair uint64) int32 {
	at := p.find(pair + 1)
	if p.keys[at] == 0 {
		if 2*p.n >= len(p.keys) {
			p.grow()
			at = p.find(pair + 1)
		}
		p.keys[at], p.numbers[at] = pair+1, int32(p.n)
		p.n++
	}
	return p.numbers[at]
}

// find is where a key is or belongs. The factor is a secret of this process: whoever chooses what is grouped does not know
// which pairs share a cell.
func (p *pairs) find(key uint64) int {
	at, mask := int(key*secrets[2]>>p.shift), len(p.keys)-1
	for p.keys[at] != 0 && p.keys[at] != key {
		at = (at + 1) & mask
	}
	return at
}

func (p *pairs) grow() {
	keys, numbers := p.keys, p.numbers
	p.reserve(2 * len(keys))
	for i, key := range keys {
		if key != 0 {
			at := p.find(key)
			p.keys[at], p.numbers[at] = key, numbers[i]
		}
	}
}
