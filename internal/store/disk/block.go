package disk

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"

	"github.com/waymark-net/waymark/internal/flow"
)

// block is a row group that is being read. Columns are read when they are needed.
type block struct {
	file    *parquet.File
	segment *segment
	group   parquet.RowGroup
	rows    int
	number  int
	first   int // number of its first row in the file
	columns map[string]*vector
	opened  map[string]*opened
	memory  *memory
	wanted  []int32 // few rows: pages without them are not read; nil: all are
}

// vector is a column, or what was read of it: its values at some rows.
type vector struct {
	same    bool     // all rows have the one value; without any, all are missing
	codes   []int32  // of a dictionary; −1: the value is missing
	nulls   bool     // some code is −1
	numbers []uint64 // of the rows, or of the dictionary
	bytes   [][]byte // likewise
	packed  []byte   // likewise, of addresses
	missing []bool   // of the rows; nil: none is
	pairs   [][]uint64
}

// addressBytes is what an address takes.
const addressBytes = 16

// values is how many values the dictionary has.
func (v *vector) values() int { return max(len(v.numbers), len(v.bytes), len(v.packed)/addressBytes) }

func newBlock(file *parquet.File, s *segment, n int, m *memory) *block {
	b := &block{file: file, segment: s, number: n, group: file.RowGroups()[n], rows: s.groups[n].Rows, columns: map[string]*vector{}, opened: map[string]*opened{}, memory: m}
	m.reuse()
	for _, g := range s.groups[:n] {
		b.first += g.Rows
	}
	return b
}

// chunk is the column of a row group; nil: the file has none, all values are missing.
func (b *block) chunk(c *column) parquet.ColumnChunk {
	path := []string{c.name}
	if c.pairs {
		path = append(path, "list", "element")
	}
	leaf, ok := b.file.Schema().Lookup(path...)
	if !ok {
		return nil
	}
	return b.group.ColumnChunks()[leaf.ColumnIndex]
}

// whole reads a column, once.
func (b *block) whole(c *column) (*vector, error) { return b.wholeIf(c, nil) }

// counter reads a counter: in files that are older than its field, it is 0.
func (b *block) counter(f *flow.Field) (*vector, error) {
	v, err := b.whole(columnNamed(f.Name))
	if v == nil && err == nil {
		v = &vector{same: true, numbers: []uint64{0}}
	}
	return v, err
}

// wholeIf reads a column, once; unless wanted (nil: always) says so of its dictionary, nothing but that.
func (b *block) wholeIf(c *column, wanted func(*vector) bool) (*vector, error) {
	if v := b.columns[c.name]; v != nil {
		if v.codes != nil && wanted != nil {
			wanted(v)
		}
		return v, nil
	}
	o, err := b.open(c)
	if err != nil || o == nil {
		return nil, err
	}
	v := o.vector
	if o.pages != nil {
		if wanted != nil && c.coded() {
			if err := o.dictionary(c, b.memory); err != nil {
				return nil, b.damaged(err)
			}
			if !wanted(v) {
				return v, nil
			}
		}
		delete(b.opened, c.name)
		defer o.pages.Close()
		v.reserve(b, c)
		if err := b.readPages(v, c, o.chunk, o.pages, nil); err != nil {
			return nil, err
		}
		if err := b.addresses(v, o.pages, b.wanted); err != nil {
			return nil, err
		}
	}
	b.columns[c.name] = v
	return v, nil
}

// opened is a column of which not more than the dictionary was read.
type opened struct {
	vector *vector
	chunk  parquet.ColumnChunk
	pages  parquet.Pages // nil: statistics say all
}

// open begins to read a column, or goes on with it; nil: the file does not have it.
func (b *block) open(c *column) (*opened, error) {
	if o := b.opened[c.name]; o != nil {
		return o, nil
	}
	chunk := b.chunk(c)
	if chunk == nil {
		return nil, nil
	}
	if v := constant(c, chunk); v != nil {
		return &opened{vector: v}, nil
	}
	o := &opened{&vector{}, chunk, b.pages(c, chunk)}
	b.opened[c.name] = o
	return o, nil
}

// dictionary reads that of a column, once.
func (o *opened) dictionary(c *column, m *memory) (err error) {
	if o.vector.values() > 0 {
		return nil
	}
	if p, ok := o.pages.(*addressPages); ok {
		o.vector.packed, err = p.dictionary(m)
		return err
	}
	f, ok := o.pages.(*parquet.FilePages)
	if !ok {
		return nil
	}
	d, err := f.ReadDictionary()
	if err != nil || d == nil {
		return err
	}
	if err := o.vector.addDictionary(c, d); err != nil {
		return err
	}
	return f.SeekToRow(0) // past the dictionary
}

// close ends what was begun.
func (b *block) close() {
	for _, o := range b.opened {
		o.pages.Close()
	}
}

// read reads a column at the given rows, in their order. A column that the file does not have gives nil.
func (b *block) read(c *column, at []int32) (*vector, error) {
	chunk := b.chunk(c)
	if chunk == nil {
		return nil, nil
	}
	if v := constant(c, chunk); v != nil {
		return v, nil
	}
	pages := b.pages(c, chunk)
	defer pages.Close()
	v := &vector{}
	if err := b.readPages(v, c, chunk, pages, at); err != nil {
		return nil, err
	}
	var places []int32
	if len(at) < b.rows/fewRows {
		for i := range at {
			places = append(places, int32(i))
		}
	}
	return v, b.addresses(v, pages, places)
}

// reserve takes memory for all rows.
func (v *vector) reserve(b *block, c *column) {
	switch {
	case c.pairs:
	case c.coded():
		v.codes = b.memory.codes(b.rows)[:0]
	default:
		v.numbers = b.memory.numbers(b.rows)[:0]
	}
}

// constant is a column that has one value, or none, as its statistics say; nil: it must be read.
func constant(c *column, chunk parquet.ColumnChunk) *vector {
	f, ok := chunk.(*parquet.FileColumnChunk)
	if !ok || c.pairs {
		return nil
	}
	switch f.NullCount() {
	case f.NumValues():
		return &vector{same: true}
	case 0:
	default:
		return nil
	}
	low, high, ok := f.Bounds()
	if !ok || !parquet.Equal(low, high) {
		return nil
	}
	v := &vector{same: true}
	switch {
	case c.bytes == nil:
		v.numbers = []uint64{numberOf(low)}
	case c.address():
		v.packed = slices.Clone(low.ByteArray())
	case len(low.ByteArray()) >= shortText: // it may be cut
		return nil
	default:
		v.bytes = [][]byte{slices.Clone(low.ByteArray())}
	}
	return v
}

// shortText is the length of texts below which statistics have them whole.
const shortText = parquet.DefaultColumnIndexSizeLimit

func numberOf(v parquet.Value) uint64 {
	switch v.Kind() {
	case parquet.Boolean:
		if v.Boolean() {
			return 1
		}
		return 0
	case parquet.Int32:
		return uint64(v.Uint32())
	}
	return v.Uint64()
}

// readPages adds the pages that have the given rows.
func (b *block) readPages(v *vector, c *column, chunk parquet.ColumnChunk, pages parquet.Pages, at []int32) error {
	every := at == nil
	if every && !c.pairs {
		at = b.wanted
	}
	some := at != nil
	for row := 0; row < b.rows; {
		if some {
			if len(at) == 0 {
				break
			}
			if next := pageOf(chunk, row, int(at[0])); next > row { // pages without these rows are skipped
				row = next
				if err := pages.SeekToRow(int64(row)); err != nil {
					return b.damaged(err)
				}
			}
		}
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return b.damaged(fmt.Errorf("column %s ends at row %d of %d", c.name, row, b.rows))
		}
		if err != nil {
			return b.damaged(err)
		}
		n := int(page.NumRows())
		var here []int32
		if some {
			end, _ := slices.BinarySearch(at, int32(row+n))
			here, at = at[:end], at[end:]
		}
		err = v.add(c, page, row, here, !every)
		parquet.Release(page)
		if err != nil {
			return b.damaged(err)
		}
		row += n
	}
	return nil
}

// pageOf is the first row of the page that a row is in; without an index of pages, from.
func pageOf(chunk parquet.ColumnChunk, from, row int) int {
	index, err := chunk.OffsetIndex()
	if err != nil || index == nil {
		return from
	}
	for i := index.NumPages() - 1; i >= 0; i-- {
		if first := int(index.FirstRowIndex(i)); first <= row {
			return first
		}
	}
	return from
}

func (b *block) damaged(err error) error {
	if damaged := (*DamagedError)(nil); errors.As(err, &damaged) {
		return err
	}
	return &DamagedError{b.segment.path, err.Error()}
}

// add takes the values of a page, whose first row is row; with some, those of the rows here only.
func (v *vector) add(c *column, page parquet.Page, row int, here []int32, some bool) error {
	if c.pairs {
		return v.addPairs(page, row, here, some)
	}
	levels := page.DefinitionLevels()
	if d := page.Dictionary(); d != nil && v.values() == 0 {
		if err := v.addDictionary(c, d); err != nil {
			return err
		}
	}
	if c.coded() != (page.Dictionary() != nil) {
		return fmt.Errorf("column %s has a page of another encoding", c.name)
	}
	if !some {
		return v.addAll(c, page, row, levels)
	}
	get, err := v.getter(c, page)
	if err != nil {
		return err
	}
	value, i := 0, 0 // of the page: without those that are missing, and with them
	for _, want := range here {
		for ; i < int(want)-row; i++ {
			if len(levels) == 0 || levels[i] > 0 {
				value++
			}
		}
		get(value, len(levels) == 0 || levels[i] > 0)
	}
	return nil
}

// addAll takes all values of a page, whose first row is row; pages before may have been left out.
func (v *vector) addAll(c *column, page parquet.Page, row int, levels []byte) error {
	data := page.Data()
	every := len(levels) == 0 || page.NumNulls() == 0
	switch {
	case c.coded() && every:
		v.codes = append(v.codes[:row], data.Int32()...)
		return nil
	case c.coded():
		v.nulls = true
		to, codes := v.codes[:row], data.Int32()
		for _, level := range levels {
			code := int32(-1)
			if level > 0 {
				code, codes = codes[0], codes[1:]
			}
			to = append(to, code)
		}
		v.codes = to
		return nil
	case every && !c.optional && data.Kind() == encoding.Int64:
		to := v.numbers[:row]
		for _, n := range data.Int64() {
			to = append(to, uint64(n))
		}
		v.numbers = to
		return nil
	}
	v.numbers = v.numbers[:row]
	if c.optional {
		v.missing = append(v.missing, make([]bool, row-len(v.missing))...)
	}
	get, err := v.getter(c, page)
	if err != nil {
		return err
	}
	value := 0
	for i := range int(page.NumRows()) {
		is := len(levels) == 0 || levels[i] > 0
		if get(value, is); is {
			value++
		}
	}
	return nil
}

// getter appends the n-th value of a page to the vector, or that it is missing.
func (v *vector) getter(c *column, page parquet.Page) (func(n int, is bool), error) {
	data := page.Data()
	if c.coded() {
		codes := data.Int32()
		return func(n int, is bool) {
			if !is {
				v.codes, v.nulls = append(v.codes, -1), true
				return
			}
			v.codes = append(v.codes, codes[n])
		}, nil
	}
	number, err := numbers(c, data)
	return func(n int, is bool) {
		if c.optional {
			v.missing = append(v.missing, !is)
		}
		if !is {
			v.numbers = append(v.numbers, 0)
			return
		}
		v.numbers = append(v.numbers, number(n))
	}, err
}

// addDictionary takes the values. The library uses the memory of pages again, but not that of dictionaries.
func (v *vector) addDictionary(c *column, d parquet.Dictionary) error {
	data := d.Page().Data()
	switch {
	case c.address():
		v.packed, _ = data.FixedLenByteArray()
	case c.bytes != nil:
		all, offsets := data.ByteArray()
		for i := range d.Len() {
			v.bytes = append(v.bytes, all[offsets[i]:offsets[i+1]])
		}
	default:
		number, err := numbers(c, data)
		if err != nil {
			return err
		}
		v.numbers = slices.Grow(v.numbers, d.Len())
		for i := range d.Len() {
			v.numbers = append(v.numbers, number(i))
		}
	}
	return nil
}
