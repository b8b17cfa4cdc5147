package disk

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"
)

// coder hands the values of a column to the library as codes of a dictionary, which it makes. The library would look up
// the value of each row, of each column, and compare it with the bounds of its page; here, most batches have one value.
type coder struct {
	column  *column
	numbers numbering
	texts   map[string]int32
	values  [][]byte // of texts and names, by code

	codes     []int32 // of the page that is filled
	next      []int32 // of the batch, of rows that have a value
	batch     [batchRows]int32
	last      int32 // the last code; −1: none in this page
	words     [2]uint64
	low, high bound // of the page
}

// bound is the least or the largest value of a page.
type bound struct {
	words [2]uint64
	code  int32
}

func newCoder(c *column) *coder { return &coder{column: c, texts: map[string]int32{}, last: -1} }

// begin makes space for the codes of a batch.
func (c *coder) begin() { c.next = c.batch[:0] }

// again adds the last code so many times.
func (c *coder) again(times int) {
	for range times {
		c.next = append(c.next, c.last)
	}
}

// number adds the code of a number, or of the name that it stands for.
func (c *coder) number(n uint64, names [][]byte) {
	if c.last >= 0 && n == c.words[0] {
		c.next = append(c.next, c.last)
		return
	}
	words := [2]uint64{n}
	code, fresh := c.numbers.number(words)
	if fresh && names != nil {
		c.values = append(c.values, names[n])
	}
	c.took(code, words)
}

// ofNumbers adds the codes of numbers, or of the names that they stand for.
func (c *coder) ofNumbers(list []uint64, names [][]byte) {
	for _, n := range list {
		if names != nil || c.last < 0 || n >= uint64(len(c.numbers.small)) || c.numbers.small[n] == 0 {
			c.number(n, names)
			continue
		}
		code, words := c.numbers.small[n]-1, [2]uint64{n} // as most are
		if n < c.low.words[0] {
			c.low = bound{words, code}
		} else if n > c.high.words[0] {
			c.high = bound{words, code}
		}
		c.last, c.words = code, words
		c.next = append(c.next, code)
	}
}

// addresses adds the codes of addresses.
func (c *coder) addresses(list [][2]uint64) {
	var hashes [batchRows]uint64
	for i, words := range list {
		hashes[i] = hashOf(words)
	}
	c.numbers.touched = c.numbers.touch(hashes[:len(list)])
	for i, words := range list {
		code, _ := c.numbers.placed(words, hashes[i])
		c.took(code, words)
	}
}

// text adds the code of a text.
func (c *coder) text(text []byte) {
	if c.last >= 0 && bytes.Equal(text, c.values[c.last]) {
		c.next = append(c.next, c.last)
		return
	}
	code, ok := c.texts[string(text)]
	if !ok {
		code = int32(len(c.texts))
		c.texts[string(text)] = code
		c.values = append(c.values, bytes.Clone(text))
	}
	c.took(code, [2]uint64{})
}

// took adds a code, and widens the bounds of the page.
func (c *coder) took(code int32, words [2]uint64) {
	b := bound{words, code}
	switch {
	case c.last < 0:
		c.low, c.high = b, b
	case c.less(&b, &c.low):
		c.low = b
	case c.less(&c.high, &b):
		c.high = b
	}
	c.last, c.words = code, words
	c.next = append(c.next, code)
}

func (c *coder) less(a, b *bound) bool {
	switch {
	case a.code == b.code:
		return false
	case c.column.bytes != nil && !c.column.address():
		return bytes.Compare(c.values[a.code], c.values[b.code]) < 0
	}
	return a.words[0] < b.words[0] || a.words[0] == b.words[0] && a.words[1] < b.words[1]
}

// value is that of a bound.
func (c *coder) value(b *bound) parquet.Value {
	switch {
	case c.column.address():
		return parquet.FixedLenByteArrayValue(appendWords(nil, b.words))
	case c.column.bytes != nil:
		return parquet.ByteArrayValue(c.values[b.code])
	case c.column.wide:
		return parquet.Int64Value(int64(b.words[0]))
	}
	return parquet.Int32Value(int32(b.words[0]))
}

func appendWords(b []byte, words [2]uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, words[0]), words[1])
}

// dictionary are all values, by code.
func (c *coder) dictionary() (values encoding.Values, n int) {
	list := c.numbers.list
	switch {
	case c.column.address():
		b := make([]byte, 0, addressBytes*len(list))
		for _, words := range list {
			b = appendWords(b, words)
		}
		return encoding.FixedLenByteArrayValues(b, addressBytes), len(list)
	case c.column.bytes != nil:
		var b []byte
		offsets := []uint32{0}
		for _, v := range c.values {
			b = append(b, v...)
			offsets = append(offsets, uint32(len(b)))
		}
		return encoding.ByteArrayValues(b, offsets), len(c.values)
	case c.column.wide:
		numbers := make([]uint64, len(list))
		for i := range list {
			numbers[i] = list[i][0]
		}
		return encoding.Uint64Values(numbers), len(list)
	}
	numbers := make([]uint32, len(list))
	for i := range list {
		numbers[i] = uint32(list[i][0])
	}
	return encoding.Uint32Values(numbers), len(list)
}

// len is how many values there are.
func (c *coder) len() int { return max(len(c.numbers.list), len(c.values)) }

// take implements source.
func (c *coder) take(n int) {
	c.codes = append(c.codes, c.next[:n]...)
	c.next = c.next[n:]
}

// size implements source.
func (c *coder) size() (rows, bytes int) { return len(c.codes), 4 * len(c.codes) }

// reset implements source.
func (c *coder) reset() { c.codes, c.last = c.codes[:0], -1 }

// page implements source.
func (c *coder) page(t parquet.Type, column int) parquet.Page {
	return codedPage{t.NewPage(column, len(c.codes), encoding.Int32Values(c.codes)), c}
}

// codedPage is a page of codes.
type codedPage struct {
	parquet.Page
	coder *coder
}

// Bounds implements parquet.Page. A page without any address has bounds that nobody reads: the library's index of pages
// has only those of pages that have bounds, and would give them to other pages.
func (p codedPage) Bounds() (low, high parquet.Value, ok bool) {
	c := p.coder
	if len(c.codes) == 0 && !c.column.address() {
		return low, high, false
	}
	if len(c.codes) == 0 {
		c.low, c.high = bound{}, bound{}
	}
	return c.value(&c.low), c.value(&c.high), len(c.codes) > 0
}

// forget forgets all values.
func (c *coder) forget() {
	c.numbers.reset()
	clear(c.texts)
	c.values = c.values[:0]
	c.last = -1
}

// numbering numbers values of two words in the order in which they come.
type numbering struct {
	cells []numberCell
	shift int
	small []int32 // one more than the number of a value that is small
	list  [][2]uint64

	touched uint64 // keeps the compiler from leaving out what touch loads
}

// numberCell is a part of the hash of a value, and one more than its number; 0: the place is free.
type numberCell struct {
	hash   uint32
	number int32
}

// smallNumbers are found by their value.
const smallNumbers = 1 << 16

// number is that of a value; fresh: it had none.
func (t *numbering) number(words [2]uint64) (n int32, fresh bool) {
	if words[1] != 0 || words[0] >= smallNumbers {
		return t.placed(words, hashOf(words))
	}
	if n := int(words[0]); n >= len(t.small) {
		t.small = append(t.small, make([]int32, n+1-len(t.small))...)
	}
	place := &t.small[words[0]]
	if fresh = *place == 0; fresh {
		t.list = append(t.list, words)
		*place = int32(len(t.list))
	}
	return *place - 1, fresh
}

// placed is number of a value that is not small.
func (t *numbering) placed(words [2]uint64, hash uint64) (n int32, fresh bool) {
	if 3*(len(t.list)+1) > 2*len(t.cells) {
		t.grow()
	}
	cell := t.find(words, hash)
	if fresh = cell.number == 0; fresh {
		t.list = append(t.list, words)
		*cell = numberCell{uint32(hash), int32(len(t.list))}
	}
	return cell.number - 1, fresh
}

// hashOf is a secret of this process: whoever chooses the values does not know which share a place.
func hashOf(words [2]uint64) uint64 {
	return ((words[0]^secrets[0])*secrets[2] ^ words[1] ^ secrets[1]) * secrets[3]
}

// touch has the processor load the places of values, and the values that are there, all at the same time.
func (t *numbering) touch(hashes []uint64) (sum uint64) {
	if len(t.list) == 0 {
		return 0
	}
	var numbers [batchRows]int32
	for i, hash := range hashes {
		numbers[i] = t.cells[hash>>t.shift].number
	}
	for _, n := range numbers[:len(hashes)] {
		sum += t.list[max(n-1, 0)][0]
	}
	return sum
}

// find is where a value is or belongs.
func (t *numbering) find(words [2]uint64, hash uint64) *numberCell {
	at, mask := int(hash>>t.shift), len(t.cells)-1
	for {
		cell := &t.cells[at]
		if cell.number == 0 || cell.hash == uint32(hash) && t.list[cell.number-1] == words {
			return cell
		}
		at = (at + 1) & mask
	}
}

func (t *numbering) grow() {
	t.cells = make([]numberCell, max(1<<6, 2*len(t.cells)))
	t.shift = 64 - bits.Len(uint(len(t.cells)-1))
	for i, words := range t.list { // small ones, too: they may be addresses
		hash := hashOf(words)
		*t.find(words, hash) = numberCell{uint32(hash), int32(i) + 1}
	}
}

func (t *numbering) reset() {
	clear(t.cells)
	clear(t.small)
	t.list = t.list[:0]
}
