package store

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"github.com/waymark-net/waymark/internal/flow"
)

// BlockRows is how many rows a block has at most: its columns stay in the cache of the processor.
const BlockRows = 1 << 8

// Block is some rows of an interval, column by column: most columns have one value. It is valid until the next one.
type Block struct {
	iv      *interval
	rows    int
	columns []numbers
	records []flow.Record // those of the rows, as far as Records says
	held    []held        // what all records have of the fields that they need, in their order
	placed  placed
	memory  []reports
}

// numbers are a column.
type numbers struct {
	same   bool // all rows have the first value
	filled int  // so many places have it, too
	list   [BlockRows]uint64
}

// The columns: of what is no field, and behind these of coded. ColumnRepeated is how many packets were seen before.
const (
	columnLink = iota
	columnReported
	columnDrop
	columnOther
	ColumnRepeated
	columnSrc    // and the low half
	columnDst    = iota + 1
	columnFields = iota + 2
)

// rowPlace is where rows have what a column does; ColumnRepeated has none.
type rowPlace struct {
	offset uintptr
	bytes  uint8
	half   bool // of an address: its first byte is the highest
	most   uint64
}

func placeOf[T any](of func(*row) *T) rowPlace {
	var w row
	size := unsafe.Sizeof(*of(&w))
	return rowPlace{uintptr(unsafe.Pointer(of(&w))) - uintptr(unsafe.Pointer(&w)), uint8(size), false, 1<<(8*size) - 1}
}

// placesOfFields are where rows have fields that are no counters.
var placesOfFields = map[string]rowPlace{
	"direction":        placeOf(func(w *row) *flow.Direction { return &w.direction }),
	"family":           placeOf(func(w *row) *uint8 { return &w.family }),
	"proto":            placeOf(func(w *row) *uint8 { return &w.proto }),
	"sport":            placeOf(func(w *row) *uint16 { return &w.sport }),
	"dport":            placeOf(func(w *row) *uint16 { return &w.dport }),
	"vlan":             placeOf(func(w *row) *uint16 { return &w.vlan }),
	"inner_vlan":       placeOf(func(w *row) *uint16 { return &w.innerVLAN }),
	"tunnel":           placeOf(func(w *row) *flow.Tunnel { return &w.tunnel }),
	"vni":              placeOf(func(w *row) *uint32 { return &w.vni }),
	"tos":              placeOf(func(w *row) *uint8 { return &w.tos }),
	"tcp_flags":        placeOf(func(w *row) *uint16 { return &w.tcpFlags }),
	"flow_label":       placeOf(func(w *row) *uint32 { return &w.flowLabel }),
	"ttl_min":          placeOf(func(w *row) *uint8 { return &w.ttlMin }),
	"ttl_max":          placeOf(func(w *row) *uint8 { return &w.ttlMax }),
	"first":            placeOf(func(w *row) *int64 { return &w.first }),
	"last":             placeOf(func(w *row) *int64 { return &w.last }),
	"end_reason":       placeOf(func(w *row) *flow.EndReason { return &w.endReason }),
	"unattributed":     flagAt(func(w *row) *bool { return &w.unattributed }),
	"initiator":        placeOf(func(w *row) *flow.Initiator { return &w.initiator }),
	"initiator_by":     placeOf(func(w *row) *flow.Evidence { return &w.initiatorBy }),
	"rtt.responder_ns": placeOf(func(w *row) *int64 { return &w.rttResponder }),
	"rtt.initiator_ns": placeOf(func(w *row) *int64 { return &w.rttInitiator }),
}

func flagAt(of func(*row) *bool) rowPlace {
	p := placeOf(of)
	p.most = 1
	return p
}

// places are those of all columns.
var places = func() []rowPlace {
	low := func(p rowPlace) rowPlace { p.offset += 8; return p }
	half := func(of func(*row) *[16]byte) rowPlace {
		p := placeOf(of)
		p.bytes, p.half, p.most = 8, true, ^uint64(0)
		return p
	}
	src, dst := half(func(w *row) *[16]byte { return &w.src }), half(func(w *row) *[16]byte { return &w.dst })
	list := []rowPlace{
		columnLink:     placeOf(func(w *row) *uint32 { return &w.link }),
		columnReported: placeOf(func(w *row) *uint32 { return &w.reported }),
		columnDrop:     placeOf(func(w *row) *uint32 { return &w.drop }),
		columnOther:    placeOf(func(w *row) *uint32 { return &w.other }),
		ColumnRepeated: {most: ^uint64(0)},
		columnSrc:      src, columnSrc + 1: low(src), columnDst: dst, columnDst + 1: low(dst),
	}
	for _, f := range coded {
		p, ok := placesOfFields[f.Name]
		if f.Counter != nil {
			p, ok = placeOf(func(w *row) *uint64 { return f.Counter(&w.Counters) }), true
		}
		if !ok {
			panic("store: rows have no place for the field " + f.Name)
		}
		list = append(list, p)
	}
	return list
}()

func newBlock() *Block {
	return &Block{columns: make([]numbers, len(places)), held: make([]held, len(recorded))}
}

// Column is the number of a field's column; −1: it has none.
func Column(f *flow.Field) int {
	if i := slices.Index(coded, f); i >= 0 {
		return columnFields + i
	}
	return -1
}

// Len is how many rows there are.
func (b *Block) Len() int { return b.rows }

// Interval is the number of the interval.
func (b *Block) Interval() uint64 { return b.iv.sequence }

// Numbers are those of a column; same: all are equal.
func (b *Block) Numbers(column int) (list []uint64, same bool) {
	c := &b.columns[column]
	return c.list[:b.rows], c.same
}

// Addresses are both halves of those of a field.
func (b *Block) Addresses(f *flow.Field) (high, low []uint64) {
	at := columnSrc
	if f.Name == "dst" {
		at = columnDst
	}
	return b.columns[at].list[:b.rows], b.columns[at+1].list[:b.rows]
}

// OnePlace reports whether all rows were counted on one interface, and were forwarded to one.
func (b *Block) OnePlace() bool { return b.columns[columnLink].same && b.columns[columnOther].same }

// constant has the first rows have one value.
func (c *numbers) constant(n uint64, rows int) {
	if c.same && c.list[0] == n && c.filled >= rows {
		return
	}
	for i := range c.list[:rows] {
		c.list[i] = n
	}
	c.same, c.filled = true, rows
}

// bounds are the least number and the largest one.
func (c *numbers) bounds(rows int) (least, most uint64) {
	least, most = c.list[0], c.list[0]
	if c.same {
		return least, most
	}
	for _, n := range c.list[:rows] {
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// read takes rows of an interval.
func (b *Block) read(iv *interval, from, to int, repeated []uint64) {
	b.iv, b.rows = iv, to-from
	rows := iv.rows[from/rowsChunk][from%rowsChunk:][:b.rows]
	for i := range places {
		c := &b.columns[i]
		var differ uint64
		if i == ColumnRepeated {
			differ = copied(c.list[:b.rows], repeated[from:to])
		} else {
			differ = places[i].read(rows, c.list[:b.rows])
		}
		c.same, c.filled = differ == 0, b.rows
	}
}

// copied copies numbers; it returns 0 if they are the same.
func copied(to, from []uint64) (differ uint64) {
	for i, n := range from[:len(to)] {
		to[i] = n
		differ |= n ^ from[0]
	}
	return differ
}

// blocks calls each with all rows of the interval.
func (e *Ended) blocks(b *Block, each func() error) error {
	repeated := e.Repeated()
	for from := 0; from < e.Len(); from += BlockRows {
		b.read(e.iv, from, min(from+BlockRows, e.Len()), repeated)
		if err := each(); err != nil {
			return err
		}
	}
	return nil
}

// Blocks calls each with all rows.
func (e *Ended) Blocks(each func(*Block) error) error {
	b := newBlock()
	return e.blocks(b, func() error { return each(b) })
}

// write adds the rows to those of an interval.
func (b *Block) write(to *rows) {
	first := to.len()
	for range b.rows {
		to.add(row{})
	}
	rows := (*to)[first/rowsChunk][first%rowsChunk:][:b.rows]
	for i := range places {
		if c := &b.columns[i]; i != ColumnRepeated && (!c.same || c.list[0] != 0) {
			places[i].write(rows, c.list[:b.rows])
		}
	}
}

// check reports numbers that no row can have.
func (b *Block) check() error {
	most := func(i int) uint64 { _, most := b.columns[i].bounds(b.rows); return most }
	iv := b.iv
	for i := range places {
		if p := &places[i]; p.most != ^uint64(0) && most(i) > p.most {
			return fmt.Errorf("a record has a number above %d", p.most)
		}
	}
	if most(columnLink) >= uint64(len(iv.links)) || most(columnReported) > uint64(len(iv.reported)) ||
		most(columnDrop) > uint64(len(iv.drops)) || most(columnOther) > uint64(len(iv.links)) {
		return errNotThere
	}
	return nil
}

// read reads numbers of rows; it returns 0 if they are the same.
func (p *rowPlace) read(rows []row, to []uint64) (differ uint64) {
	at := unsafe.Add(unsafe.Pointer(&rows[0]), p.offset)
	switch {
	case p.half:
		for i := range to {
			to[i] = binary.BigEndian.Uint64(halfAt(at, i)[:])
			differ |= to[i] ^ to[0]
		}
		return differ
	case p.bytes == 1:
		return readAt[uint8](at, to)
	case p.bytes == 2:
		return readAt[uint16](at, to)
	case p.bytes == 4:
		return readAt[uint32](at, to)
	}
	return readAt[uint64](at, to)
}

func (p *rowPlace) write(rows []row, from []uint64) {
	at := unsafe.Add(unsafe.Pointer(&rows[0]), p.offset)
	switch {
	case p.half:
		for i, n := range from {
			binary.BigEndian.PutUint64(halfAt(at, i)[:], n)
		}
	case p.bytes == 1:
		writeAt[uint8](at, from)
	case p.bytes == 2:
		writeAt[uint16](at, from)
	case p.bytes == 4:
		writeAt[uint32](at, from)
	default:
		writeAt[uint64](at, from)
	}
}

// halfAt is the half of an address in a row.
func halfAt(first unsafe.Pointer, i int) *[8]byte {
	return (*[8]byte)(unsafe.Add(first, uintptr(i)*unsafe.Sizeof(row{})))
}

type unsigned interface {
	uint8 | uint16 | uint32 | uint64
}

func readAt[T unsigned](at unsafe.Pointer, to []uint64) (differ uint64) {
	first := uint64(*(*T)(at))
	for i := range to {
		n := uint64(*(*T)(unsafe.Add(at, uintptr(i)*unsafe.Sizeof(row{}))))
		to[i] = n
		differ |= n ^ first
	}
	return differ
}

func writeAt[T unsigned](first unsafe.Pointer, from []uint64) {
	for i, n := range from {
		*(*T)(unsafe.Add(first, uintptr(i)*unsafe.Sizeof(row{}))) = T(n)
	}
}
