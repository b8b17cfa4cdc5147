package disk

import (
	"encoding/binary"
	"time"

	"github.com/waymark-net/waymark/internal/digest"
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
	l := &local{counts: c, block: b, at: at, groups: b.memory.codes(len(at)), firsts: b.memory.codes(1)}
	clear(l.groups)
	l.firsts[0] = at[0]
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
		l.combine(codes, n)
	}
	return l, nil
}

// keep leaves the rows of groups that are meant, and numbers these groups again in their order.
func (l *local) keep(meant []byte) {
	at, groups, kept := l.at, l.groups, 0
	for i, g := range groups {
		at[kept], groups[kept] = at[i], g
		kept += int(meant[g])
	}
	at, groups = at[:kept], groups[:kept]
	renamed, firsts := l.block.memory.codes(len(meant)), l.firsts[:0]
	for g, is := range meant {
		if is != 0 {
			renamed[g] = int32(len(firsts))
			firsts = append(firsts, l.firsts[g])
		}
	}
	for i, g := range groups {
		groups[i] = renamed[g]
	}
	l.at, l.groups, l.firsts = at, groups, firsts
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
	l.combine(l.stepOf, len(l.buckets))
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
	masks := [2][2]uint64{maskOf(k.bits6), maskOf(96 + k.bits4)}
	bit, codes, packed := uint64(1)<<column, v.codes, v.packed
	if v.same && v.values() == 0 {
		return
	}
	for i, row := range firsts {
		code := int32(0)
		if !v.same {
			code = codes[row]
		}
		if code < 0 {
			continue
		}
		key, address := words[i*width:][:width], packed[int(code)*addressBytes:][:addressBytes]
		mask := &masks[mark(key[l.family()] == 4)]
		key[k.word] = binary.BigEndian.Uint64(address) & mask[0]
		key[k.word+1] = binary.BigEndian.Uint64(address[8:]) & mask[1]
		key[0] |= bit
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
	if v.codes != nil && v.bytes == nil {
		l.numbers(words, width, firsts, column)
		return
	}
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

// numbers is values of a dictionary of numbers.
func (l *local) numbers(words []uint64, width int, firsts []int32, column int) {
	v, word, bit := l.keys[column], l.counts.keys[column].word, uint64(1)<<column
	for i, row := range firsts {
		if code := v.codes[row]; code >= 0 && v.numbers[code] != 0 {
			words[i*width+word] = v.numbers[code]
			words[i*width] |= bit
		}
	}
}

// find finds the numbers of all groups in a table; missing numbers those that are not there.
func (l *local) find(in *table, missing func(group int, key []uint64, d digest.Digest) (int32, error)) (numbers []int32, err error) {
	numbers = l.block.memory.codes(len(l.firsts))
	var digests [keysAtOnce]digest.Digest
	for from := 0; from < len(numbers); from += keysAtOnce {
		part := numbers[from:min(from+keysAtOnce, len(numbers))]
		words := l.keysOf(from, from+len(part), in.width)
		for i := range part {
			digests[i] = digestOf(words[i*in.width:][:in.width])
		}
		in.Find(digests[:len(part)], part)
		for i, n := range part {
			if n >= 0 {
				continue
			}
			if part[i] = in.One(digests[i]); part[i] >= 0 { // another group of the part was
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

// combine numbers the pairs of a group and a code below values: they are the groups then.
func (l *local) combine(codes []int32, values int) {
	memory, count := l.block.memory, len(l.firsts)
	size := count * values
	if size <= 8*len(l.at)+1<<10 {
		l.combineFew(codes, values)
		return
	}
	firsts := memory.codes(len(l.at))
	pairs := newPairs(memory)
	for i, row := range l.at {
		g := pairs.number(uint64(l.groups[i])<<32 | uint64(codes[row]))
		if l.groups[i] = g; int(g) == pairs.n-1 { // it may be a new one
			firsts[g] = row
		}
	}
	l.firsts = firsts[:pairs.n]
}

// combineFew is combine with a place for each pair.
func (l *local) combineFew(codes []int32, values int) {
	table, firsts := l.block.memory.codes(len(l.firsts)*values), l.block.memory.codes(min(len(l.firsts)*values, len(l.at)))[:0]
	clear(table)
	groups, values32 := l.groups[:len(l.at)], int32(values)
	for i, row := range l.at {
		cell := &table[groups[i]*values32+codes[row]]
		if *cell == 0 {
			firsts = append(firsts, row)
			*cell = int32(len(firsts))
		}
		groups[i] = *cell - 1
	}
	l.firsts = firsts
}
