package disk

import (
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"
)

// The library takes values one by one, each in 24 bytes with its type and its levels. The types below have it write what
// a source has as a list instead. Each stands in front of one of the library, and leaves to it all but what is said here.

// source has the rows of the page that is filled, and those of the batch behind them.
type source interface {
	take(n int) // moves so many of the batch to the page
	size() (rows, bytes int)
	page(t parquet.Type, column int) parquet.Page
	reset() // begins a page
}

// handedNode is a column in a schema.
type handedNode struct {
	parquet.Node
	from source
}

// Type implements parquet.Node.
func (n handedNode) Type() parquet.Type { return handedType{n.Node.Type(), n.from} }

// handedType is the type of values, or of codes.
type handedType struct {
	parquet.Type
	from source
}

// NewColumnBuffer implements parquet.Type.
func (t handedType) NewColumnBuffer(column, _ int) parquet.ColumnBuffer {
	return handedBuffer{t.Type.NewColumnBuffer(column, 0), t, column}
}

// NewDictionary implements parquet.Type.
func (t handedType) NewDictionary(column, n int, values encoding.Values) parquet.Dictionary {
	return handedDictionary{t.Type.NewDictionary(column, n, values), t.Type, t.from.(*coder), column}
}

// handedBuffer has the rows of a page.
type handedBuffer struct {
	parquet.ColumnBuffer
	of     handedType
	column int
}

// WriteValues implements parquet.ColumnBuffer: of the values, no more than their number is of interest.
func (b handedBuffer) WriteValues(values []parquet.Value) (int, error) {
	b.of.from.take(len(values))
	return len(values), nil
}

// Len implements parquet.ColumnBuffer.
func (b handedBuffer) Len() int {
	rows, _ := b.of.from.size()
	return rows
}

// Size implements parquet.ColumnBuffer.
func (b handedBuffer) Size() int64 {
	_, bytes := b.of.from.size()
	return int64(bytes)
}

// Reset implements parquet.ColumnBuffer.
func (b handedBuffer) Reset() { b.of.from.reset() }

// Page implements parquet.ColumnBuffer.
func (b handedBuffer) Page() parquet.Page { return b.of.from.page(b.of.Type, b.column) }

// handedDictionary has the values of a coder; that of the library stays empty.
type handedDictionary struct {
	parquet.Dictionary
	typ    parquet.Type // of the values
	coder  *coder
	column int
}

// Type implements parquet.Dictionary.
func (d handedDictionary) Type() parquet.Type { return handedType{d.Dictionary.Type(), d.coder} }

// Len implements parquet.Dictionary.
func (d handedDictionary) Len() int { return d.coder.len() }

// Size implements parquet.Dictionary: it is for a bound that is not set.
func (d handedDictionary) Size() int64 { return 0 }

// Page implements parquet.Dictionary.
func (d handedDictionary) Page() parquet.Page {
	values, n := d.coder.dictionary()
	return d.typ.NewPage(d.column, n, values)
}

// Reset implements parquet.Dictionary.
func (d handedDictionary) Reset() { d.coder.forget() }

// plainNumbers are the numbers of 64 bits of a column without a dictionary.
type plainNumbers struct {
	filled []uint64
	next   []uint64
}

func (p *plainNumbers) take(n int) {
	p.filled = append(p.filled, p.next[:n]...)
	p.next = p.next[n:]
}

func (p *plainNumbers) size() (rows, bytes int) { return len(p.filled), 8 * len(p.filled) }

func (p *plainNumbers) page(t parquet.Type, column int) parquet.Page {
	return t.NewPage(column, len(p.filled), encoding.Uint64Values(p.filled))
}

func (p *plainNumbers) reset() { p.filled = p.filled[:0] }
