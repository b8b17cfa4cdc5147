package disk

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// addressPages are the pages of a column of addresses. Its dictionary is the most that a file has, and is not compressed:
// it is read into memory that is used again, or only where the few rows that are asked for have their values. The library
// would read all of it for any page, and copy it twice.
type addressPages struct {
	file  *parquet.File
	chunk *parquet.FileColumnChunk
	meta  *format.ColumnMetaData
	at    int64 // of the page that is read next
	none  parquet.Dictionary
	*pageMemory

	entries int   // of the dictionary; −1: it was not looked at yet
	first   int64 // where it has the first one
}

// pageMemory is what pages of one column after the other use.
type pageMemory struct {
	head [512]byte // more than one has
	body []byte
	page addressPage
}

// newAddressPages is nil where the column is of another form.
func newAddressPages(file *parquet.File, group int, chunk *parquet.FileColumnChunk, m *pageMemory) *addressPages {
	meta := &file.Metadata().RowGroups[group].Columns[chunk.Column()].MetaData
	if meta.Codec != format.Uncompressed || meta.DictionaryPageOffset == 0 {
		return nil
	}
	t := chunk.Type()
	return &addressPages{
		file: file, chunk: chunk, meta: meta, at: meta.DataPageOffset, entries: -1, pageMemory: m,
		none: t.NewDictionary(chunk.Column(), 0, t.NewValues(nil, nil)),
	}
}

// header reads the head of a page; size is what it takes itself.
func (p *addressPages) header(at int64) (h *format.PageHeader, size int, err error) {
	n, err := p.file.ReadAt(p.head[:], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	var protocol thrift.CompactProtocol
	r := protocol.NewReaderFromBytes(p.head[:n])
	h = &format.PageHeader{}
	if err := thrift.NewDecoder(r).Decode(h); err != nil {
		return nil, 0, fmt.Errorf("the head of the page at byte %d: %w", at, err)
	}
	return h, r.BytesRead(), nil
}

// addressPage is a page: what vectors read of one.
type addressPage struct {
	parquet.Page
	rows   int
	levels []byte // 0: the value is missing; nil: none is
	codes  []int32
	none   parquet.Dictionary
}

func (p *addressPage) NumRows() int64                 { return int64(p.rows) }
func (p *addressPage) NumNulls() int64                { return int64(p.rows - len(p.codes)) }
func (p *addressPage) DefinitionLevels() []byte       { return p.levels }
func (p *addressPage) Data() encoding.Values          { return encoding.Int32Values(p.codes) }
func (p *addressPage) Dictionary() parquet.Dictionary { return p.none }

// levelsOf decodes whether values are missing.
var levelsOf = rle.Encoding{BitWidth: 1}

// ReadPage implements parquet.Pages. The page is valid until the next call, of any column, and its dictionary is empty.
func (p *addressPages) ReadPage() (parquet.Page, error) {
	end := p.meta.DictionaryPageOffset + p.meta.TotalCompressedSize
	if p.at >= end {
		return nil, io.EOF
	}
	h, size, err := p.header(p.at)
	if err != nil {
		return nil, err
	}
	v2, bytes := &h.DataPageHeaderV2.V, int64(h.CompressedPageSize)
	rows, values, levels := int(v2.NumValues), int(v2.NumValues-v2.NumNulls), int64(v2.DefinitionLevelsByteLength)
	if !h.DataPageHeaderV2.Valid || v2.Encoding != format.RLEDictionary || v2.RepetitionLevelsByteLength != 0 ||
		values < 0 || values > rows || rows > groupRows || levels < 0 || levels > bytes || p.at+int64(size)+bytes > end {
		return nil, fmt.Errorf("the page at byte %d is of another form", p.at)
	}
	if int64(cap(p.body)) < bytes {
		p.body = make([]byte, bytes)
	}
	body := p.body[:bytes]
	if _, err := p.file.ReadAt(body, p.at+int64(size)); err != nil {
		return nil, err
	}
	page := &p.page
	page.rows, page.none, page.levels = rows, p.none, page.levels[:0]
	if levels > 0 {
		if page.levels, err = levelsOf.DecodeLevels(slices.Grow(page.levels, rows), body[:levels]); err == nil && len(page.levels) < rows {
			err = io.ErrUnexpectedEOF
		}
	}
	if err == nil {
		page.codes, err = parquet.RLEDictionary.DecodeInt32(slices.Grow(page.codes[:0], values), body[levels:])
	}
	if n := len(page.codes); err == nil && n < values {
		if int(levels) < len(body) && body[levels] != 0 {
			err = io.ErrUnexpectedEOF
		}
		page.codes = append(page.codes, make([]int32, values-n)...) // of zeros, nothing is written
	}
	if err != nil {
		return nil, fmt.Errorf("the page at byte %d: %w", p.at, err)
	}
	page.codes = page.codes[:values]
	if levels > 0 {
		page.levels = page.levels[:rows]
	}
	p.at += int64(size) + bytes
	return page, nil
}

// SeekToRow implements parquet.Pages, for the first row of a page.
func (p *addressPages) SeekToRow(row int64) error {
	index, err := p.chunk.OffsetIndex()
	if err != nil {
		return err
	}
	for i := range index.NumPages() {
		if index.FirstRowIndex(i) == row {
			p.at = index.Offset(i)
			return nil
		}
	}
	return fmt.Errorf("no page begins with row %d", row)
}

// Close implements parquet.Pages.
func (p *addressPages) Close() error { return nil }

// find finds the dictionary.
func (p *addressPages) find() error {
	if p.entries >= 0 {
		return nil
	}
	at := p.meta.DictionaryPageOffset
	h, size, err := p.header(at)
	if err != nil {
		return err
	}
	n := int64(h.DictionaryPageHeader.V.NumValues)
	if !h.DictionaryPageHeader.Valid || n < 0 || n > math.MaxInt32/addressBytes || int64(h.CompressedPageSize) != n*addressBytes || at+int64(size)+n*addressBytes > p.meta.DataPageOffset {
		return fmt.Errorf("the dictionary at byte %d is of another form", at)
	}
	p.entries, p.first = int(n), at+int64(size)
	return nil
}

// dictionary reads all of it.
func (p *addressPages) dictionary(m *memory) ([]byte, error) {
	if err := p.find(); err != nil {
		return nil, err
	}
	b := m.marks(p.entries * addressBytes)
	_, err := p.file.ReadAt(b, p.first)
	return b, err
}

// gather reads what of the dictionary some places of a vector have, and gives it new numbers.
func (p *addressPages) gather(v *vector, places []int32) error {
	if err := p.find(); err != nil {
		return err
	}
	codes := map[int32]int32{}
	for _, at := range places {
		code := v.codes[at]
		if code < 0 {
			continue
		}
		to, ok := codes[code]
		if !ok {
			if int(code) >= p.entries {
				return fmt.Errorf("a row has the value %d of %d", code, p.entries)
			}
			to = int32(len(codes))
			codes[code] = to
			v.packed = append(v.packed, make([]byte, addressBytes)...)
			if _, err := p.file.ReadAt(v.packed[int(to)*addressBytes:], p.first+int64(code)*addressBytes); err != nil {
				return err
			}
		}
		v.codes[at] = to
	}
	return nil
}

// pages reads the pages of a column.
func (b *block) pages(c *column, chunk parquet.ColumnChunk) parquet.Pages {
	if f, ok := chunk.(*parquet.FileColumnChunk); ok && c.address() {
		if p := newAddressPages(b.file, b.number, f, &b.memory.pages); p != nil {
			return p
		}
	}
	return chunk.Pages()
}

// addresses completes a column of addresses whose codes were read; places are the only ones that are asked for, nil: all.
func (b *block) addresses(v *vector, pages parquet.Pages, places []int32) (err error) {
	p, ok := pages.(*addressPages)
	switch {
	case !ok || v.values() > 0:
		return nil
	case places != nil:
		err = p.gather(v, places)
	default:
		v.packed, err = p.dictionary(b.memory)
	}
	if err != nil {
		return b.damaged(err)
	}
	return nil
}
