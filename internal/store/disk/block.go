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
}

// vector is a column, or what was read of it: its values at some rows.
type vector struct {
	codes   []int32  // of a dictionary; −1: the value is missing
	numbers []uint64 // of the rows, or of the dictionary
	bytes   [][]byte // likewise
	missing []bool   // of the rows; nil: none is
	pairs   [][]uint64
}

// dictionary reports whether the rows have codes.
func (v *vector) dictionary() bool { return v.codes != nil }

// values is how many values the dictionary has.
func (v *vector) values() int { return max(len(v.numbers), len(v.bytes)) }

func newBlock(file *parquet.File, s *segment, n int) *block {
	b := &block{file: file, segment: s, number: n, group: file.RowGroups()[n], rows: s.groups[n].Rows, columns: map[string]*vector{}}
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
func (b *block) whole(c *column) (*vector, error) {
	if v := b.columns[c.name]; v != nil {
		return v, nil
	}
	v, err := b.read(c, nil)
	if err == nil {
		b.columns[c.name] = v
	}
	return v, err
}

// read reads a column at the given rows, in their order; nil: at all. A column that the file does
// not have gives nil.
func (b *block) read(c *column, at []int32) (*vector, error) {
	chunk := b.chunk(c)
	if chunk == nil {
		return nil, nil
	}
	pages := chunk.Pages()
	defer pages.Close()
	v := &vector{}
	for row := 0; row < b.rows; {
		if at != nil {
			if len(at) == 0 {
				break
			}
			if int(at[0]) >= row+pageRows(chunk, row) { // pages without these rows are skipped
				row = int(at[0])
				if err := pages.SeekToRow(int64(row)); err != nil {
					return nil, b.damaged(err)
				}
			}
		}
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return nil, b.damaged(fmt.Errorf("column %s ends at row %d of %d", c.name, row, b.rows))
		}
		if err != nil {
			return nil, b.damaged(err)
		}
		n := int(page.NumRows())
		var here []int32
		if at != nil {
			end, _ := slices.BinarySearch(at, int32(row+n))
			here, at = at[:end], at[end:]
		}
		err = v.add(c, page, row, here, at != nil || here != nil)
		parquet.Release(page)
		if err != nil {
			return nil, b.damaged(err)
		}
		row += n
	}
	return v, nil
}

// pageRows is how many rows the page has that begins with a row; at least one.
func pageRows(chunk parquet.ColumnChunk, row int) int {
	index, err := chunk.OffsetIndex()
	if err != nil || index == nil {
		return 1 << 30
	}
	for i := range index.NumPages() - 1 {
		if first := int(index.FirstRowIndex(i + 1)); first > row {
			return first - row
		}
	}
	return 1 << 30
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
	get, err := v.getter(c, page)
	if err != nil {
		return err
	}
	value := 0 // of the page, without those that are missing
	take := func(i int) {
		is := len(levels) == 0 || levels[i] > 0
		get(value, is)
		if c.optional && !v.dictionary() {
			v.missing = append(v.missing, !is)
		}
	}
	if !some && len(levels) == 0 && v.appendAll(page) {
		return nil
	}
	if !some {
		for i := range int(page.NumRows()) {
			take(i)
			if len(levels) == 0 || levels[i] > 0 {
				value++
			}
		}
		return nil
	}
	i := 0
	for _, want := range here {
		for ; i < int(want)-row; i++ {
			if len(levels) == 0 || levels[i] > 0 {
				value++
			}
		}
		take(i)
	}
	return nil
}

// appendAll appends a page of which no value is missing; false: it is of another kind.
func (v *vector) appendAll(page parquet.Page) bool {
	data := page.Data()
	switch {
	case v.dictionary():
		v.codes = append(v.codes, data.Int32()...)
	case data.Kind() == encoding.Int64:
		for _, n := range data.Int64() {
			v.numbers = append(v.numbers, uint64(n))
		}
	default:
		return false
	}
	return true
}

// getter appends the n-th value of a page to the vector, or that it is missing.
func (v *vector) getter(c *column, page parquet.Page) (func(n int, is bool), error) {
	data := page.Data()
	if d := page.Dictionary(); d != nil {
		if v.codes == nil {
			v.codes = []int32{}
			if err := v.addDictionary(c, d); err != nil {
				return nil, err
			}
		}
		codes := data.Int32()
		return func(n int, is bool) {
			if !is {
				v.codes = append(v.codes, -1)
				return
			}
			v.codes = append(v.codes, codes[n])
		}, nil
	}
	if v.codes != nil {
		return nil, fmt.Errorf("column %s has pages with a dictionary and without", c.name)
	}
	number, err := numbers(c, data)
	return func(n int, is bool) {
		if !is {
			v.numbers = append(v.numbers, 0)
			return
		}
		v.numbers = append(v.numbers, number(n))
	}, err
}

// addDictionary keeps a copy of the values: the pages' memory is used again.
func (v *vector) addDictionary(c *column, d parquet.Dictionary) error {
	data := d.Page().Data()
	switch {
	case c.bytes != nil && c.field.Kind == flow.Address:
		all, size := data.FixedLenByteArray()
		all = slices.Clone(all)
		for i := 0; i+size <= len(all); i += size {
			v.bytes = append(v.bytes, all[i:i+size])
		}
	case c.bytes != nil:
		all, offsets := data.ByteArray()
		all = slices.Clone(all)
		for i := range d.Len() {
			v.bytes = append(v.bytes, all[offsets[i]:offsets[i+1]])
		}
	default:
		number, err := numbers(c, data)
		if err != nil {
			return err
		}
		for i := range d.Len() {
			v.numbers = append(v.numbers, number(i))
		}
	}
	return nil
}

// dictionary reads the values that a column has; nil: it has no dictionary.
func (b *block) dictionary(c *column, chunk parquet.ColumnChunk) (*vector, error) {
	if c.pairs || c.flag {
		return nil, nil
	}
	pages, ok := chunk.Pages().(*parquet.FilePages)
	if !ok {
		return nil, nil
	}
	defer pages.Close()
	d, err := pages.ReadDictionary()
	if err != nil || d == nil {
		return nil, err
	}
	v := &vector{}
	return v, v.addDictionary(c, d)
}
