package disk

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/store"
)

// local are the groups of a block's rows: a number for each row that is asked for.
type local struct {
	counts *counts
	block  *block
	at     []int32 // the rows
	groups []int32
	firsts []int32 // a row of each group
	keys   []*vector
	parts  []part   // where there are steps
	words  []uint64 // of a key
}

// groupsOf numbers the groups of rows by their keys.
func (c *counts) groupsOf(b *block, at []int32) (*local, error) {
	l := &local{counts: c, block: b, at: at, groups: b.memory.codes(len(at)), words: make([]uint64, c.ids.width)}
	clear(l.groups)
	count := 1
	for i := range c.keys {
		v, err := b.whole(c.keys[i].column)
		if err != nil {
			return nil, err
		}
		l.keys = append(l.keys, v)
		if v == nil || v.same {
			continue
		}
		codes, n := v.numbered(b.memory)
		count = b.combine(l.groups, at, codes, n, count)
	}
	l.count(count)
	return l, nil
}

// count finds a row of each of so many groups.
func (l *local) count(groups int) {
	l.firsts = l.block.memory.codes(groups)
	for i, row := range l.at {
		l.firsts[l.groups[i]] = row
	}
}

// keep leaves the rows of groups that are meant; numbers of groups stay.
func (l *local) keep(meant []bool) {
	at, groups := l.at[:0], l.groups[:0]
	for i, g := range l.groups {
		if meant[g] {
			at, groups = append(at, l.at[i]), append(groups, g)
		}
	}
	n := int32(0)
	renamed := l.block.memory.codes(len(meant))
	for g, is := range meant {
		if is {
			renamed[g] = n
			n++
		}
	}
	for i, g := range groups {
		groups[i] = renamed[g]
	}
	l.at, l.groups = at, groups
	l.count(int(n))
}

// steps distinguishes groups by time, too.
func (l *local) steps() {
	p := l.counts.run.plan
	l.parts = l.block.parts()
	codes := l.block.memory.codes(l.block.rows)
	n := int32(0)
	var last time.Time
	l.block.intervals(func(h *store.Head, from, to int) {
		if bucket := p.Bucket(h.From); n == 0 || !bucket.Equal(last) {
			n++
			last = bucket
		}
		for row := from; row < to; row++ {
			codes[row] = n - 1
		}
	})
	l.count(l.block.combine(l.groups, l.at, codes, int(n), len(l.firsts)))
}

// bucket is the step of time of a group; zero: there are none.
func (l *local) bucket(group int) (at time.Time) {
	if l.parts == nil {
		return at
	}
	row := int(l.firsts[group])
	i, _ := slices.BinarySearchFunc(l.parts, row+1, func(p part, end int) int { return p.to - end })
	return l.counts.run.plan.Bucket(l.parts[i].head.From)
}

// key is what tells a group from those of other blocks; it is valid until the next.
func (l *local) key(group, width int) []uint64 {
	row := int(l.firsts[group])
	key := l.words[:width]
	key[0] = 0
	for i, v := range l.keys {
		k := &l.counts.keys[i]
		key[k.word] = 0
		if k.address() {
			key[k.word+1] = 0
		}
		if v == nil {
			continue
		}
		n, text, is := v.cell(row)
		switch {
		case !is, text == nil && n == 0: // a group does not distinguish 0 from a value that is missing
			continue
		case k.address():
			bits := k.bits6
			if key[l.family()] == 4 {
				bits = 96 + k.bits4
			}
			key[k.word] = binary.BigEndian.Uint64(text) & (^uint64(0) << max(0, 64-bits))
			key[k.word+1] = binary.BigEndian.Uint64(text[8:]) & (^uint64(0) << min(64, 128-bits))
		case text != nil && len(text) == 0:
			continue
		case text != nil:
			key[k.word] = l.counts.textID(text)
		default:
			key[k.word] = n
		}
		key[0] |= 1 << i
	}
	if width > l.counts.meant.width {
		key[width-1] = 0
		if l.parts != nil {
			key[width-1] = uint64(l.bucket(group).UnixNano())
		}
	}
	return key
}

// find digests the keys of all groups, and finds their numbers in a table.
func (l *local) find(in *table) ([]digest, []int32) {
	digests := l.block.memory.places(len(l.firsts))
	for g := range digests {
		digests[g] = digestOf(l.key(g, in.width))
	}
	numbers := l.block.memory.codes(len(digests))
	in.find(digests, numbers)
	return digests, numbers
}

// family is the place of the IP version in keys that have addresses: it comes first.
func (l *local) family() int { return 1 }

// numbered are the values of a column by row, as numbers below n.
func (v *vector) numbered(m *memory) (codes []int32, n int) {
	if v.codes != nil {
		if !v.nulls {
			return v.codes, v.values()
		}
		codes = m.codes(len(v.codes))
		for i, code := range v.codes {
			codes[i] = code + 1
		}
		return codes, v.values() + 1
	}
	index := map[uint64]int32{}
	codes = m.codes(len(v.numbers))
	for i, number := range v.numbers {
		if codes[i] = 0; v.missing != nil && v.missing[i] {
			continue
		}
		code, ok := index[number]
		if !ok {
			code = int32(len(index) + 1)
			index[number] = code
		}
		codes[i] = code
	}
	return codes, len(index) + 1
}

// combine numbers the pairs of a group and a code, and returns how many there are.
func (b *block) combine(groups, at, codes []int32, values, count int) int {
	if count == 1 && values <= 2*len(at) { // most dictionaries have only values of some row
		return firstKey(groups, at, codes, b.memory.codes(values))
	}
	if size := count * values; size <= 8*len(at)+1<<10 {
		table := b.memory.codes(size)
		clear(table)
		n := int32(0)
		for i, row := range at {
			cell := &table[int(groups[i])*values+int(codes[row])]
			if *cell == 0 {
				n++
				*cell = n
			}
			groups[i] = *cell - 1
		}
		return int(n)
	}
	index := map[uint64]int32{}
	for i, row := range at {
		key := uint64(groups[i])<<32 | uint64(codes[row])
		n, ok := index[key]
		if !ok {
			n = int32(len(index))
			index[key] = n
		}
		groups[i] = n
	}
	return len(index)
}

// firstKey is combine of one group: the codes that occur are numbered.
func firstKey(groups, at, codes, table []int32) int {
	for i := range table {
		table[i] = -1
	}
	n := int32(0)
	for i, row := range at {
		cell := &table[codes[row]]
		if *cell < 0 {
			*cell = n
			n++
		}
		groups[i] = *cell
	}
	return int(n)
}
