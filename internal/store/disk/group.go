package disk

import (
	"encoding/binary"
	"time"

	"github.com/waymark-net/waymark/internal/store"
)

// local are the groups of a block's rows: a number for each row that is asked for.
type local struct {
	counts  *counts
	block   *block
	at      []int32 // the rows
	groups  []int32
	firsts  []int32 // a row of each group
	keys    []*vector
	buckets []time.Time // steps, where there are some
	stepOf  []int32     // the step of a row
	words   []uint64    // of keys
}

// groupsOf numbers the groups of rows by their keys.
func (c *counts) groupsOf(b *block, at []int32) (*local, error) {
	l := &local{counts: c, block: b, at: at, groups: b.memory.codes(len(at))}
	clear(l.groups)
	count := 1
	var err error
	if c.folded, err = c.fold(b, at); err != nil {
		return nil, err
	}
	for i := range c.keys {
		v, err := c.folded.column(b, c.keys[i].column)
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
func (l *local) keep(meant []byte) {
	at, groups := l.at[:0], l.groups[:0]
	for i, g := range l.groups {
		if meant[g] != 0 {
			at, groups = append(at, l.at[i]), append(groups, g)
		}
	}
	n := int32(0)
	renamed := l.block.memory.codes(len(meant))
	for g, is := range meant {
		if is != 0 {
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
	l.stepOf = l.block.memory.codes(l.block.rows)
	l.block.intervals(func(h *store.Head, from, to int) {
		if bucket := p.Bucket(h.From); len(l.buckets) == 0 || !bucket.Equal(l.buckets[len(l.buckets)-1]) {
			l.buckets = append(l.buckets, bucket)
		}
		for row := from; row < to; row++ {
			l.stepOf[row] = int32(len(l.buckets)) - 1
		}
	})
	l.count(l.block.combine(l.groups, l.at, l.stepOf, len(l.buckets), len(l.firsts)))
}

// bucket is the step of time of a group; zero: there are none.
func (l *local) bucket(group int) (at time.Time) {
	if l.buckets == nil {
		return at
	}
	return l.buckets[l.stepOf[l.firsts[group]]]
}

// keysAtOnce is how many keys are made at once, column by column: they stay in the cache of the processor.
const keysAtOnce = 1 << 8

// keysOf are what tells groups from those of other blocks, width words of each; they are valid until the next call.
func (l *local) keysOf(from, to, width int) []uint64 {
	if size := (to - from) * width; cap(l.words) < size {
		l.words = make([]uint64, size)
	}
	words := l.words[:(to-from)*width]
	clear(words)
	for i, v := range l.keys {
		switch k := &l.counts.keys[i]; {
		case v == nil:
		case k.address():
			l.addresses(words, width, l.firsts[from:to], i)
		default:
			l.values(words, width, l.firsts[from:to], i)
		}
	}
	if width > l.counts.meant.width && l.buckets != nil {
		for g := from; g < to; g++ {
			words[(g-from+1)*width-1] = uint64(l.bucket(g).UnixNano())
		}
	}
	return words
}

// addresses writes those of a column into keys, cut as the plan says.
func (l *local) addresses(words []uint64, width int, firsts []int32, column int) {
	k, v := &l.counts.keys[column], l.keys[column]
	mask4, mask6 := maskOf(96+k.bits4), maskOf(k.bits6)
	for i, row := range firsts {
		_, address, is := v.cell(int(row))
		if !is {
			continue
		}
		key, mask := words[i*width:][:width], &mask6
		if key[l.family()] == 4 {
			mask = &mask4
		}
		key[k.word] = binary.BigEndian.Uint64(address) & mask[0]
		key[k.word+1] = binary.BigEndian.Uint64(address[8:]) & mask[1]
		key[0] |= 1 << column
	}
}

// maskOf is that of a prefix of an address.
func maskOf(bits int) [2]uint64 {
	return [2]uint64{^uint64(0) << max(0, 64-bits), ^uint64(0) << min(64, 128-bits)}
}

// values writes numbers and texts of a column into keys. A group does not distinguish 0, or no text, from a value that
// is missing.
func (l *local) values(words []uint64, width int, firsts []int32, column int) {
	k, v := &l.counts.keys[column], l.keys[column]
	for i, row := range firsts {
		n, text, is := v.cell(int(row))
		switch {
		case !is, text == nil && n == 0, text != nil && len(text) == 0:
			continue
		case text != nil:
			n = l.counts.textID(text)
		}
		words[i*width+k.word] = n
		words[i*width] |= 1 << column
	}
}

// find finds the numbers of all groups in a table; missing numbers those that are not there.
func (l *local) find(in *table, missing func(group int, key []uint64, d digest) (int32, error)) (numbers []int32, err error) {
	numbers = l.block.memory.codes(len(l.firsts))
	var digests [keysAtOnce]digest
	for from := 0; from < len(numbers); from += keysAtOnce {
		part := numbers[from:min(from+keysAtOnce, len(numbers))]
		words := l.keysOf(from, from+len(part), in.width)
		for i := range part {
			digests[i] = digestOf(words[i*in.width:][:in.width])
		}
		in.find(digests[:len(part)], part)
		for i, n := range part {
			if n >= 0 {
				continue
			}
			if part[i] = in.one(digests[i]); part[i] >= 0 { // another group of the part was
				continue
			}
			if part[i], err = missing(from+i, words[i*in.width:][:in.width], digests[i]); err != nil {
				return nil, err
			}
		}
	}
	return numbers, nil
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
	pairs := newPairs(b.memory)
	for i, row := range at {
		groups[i] = pairs.number(uint64(groups[i])<<32 | uint64(codes[row]))
	}
	return pairs.n
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
