package disk

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"

	"github.com/waymark-net/waymark/internal/flow"
)

// numbers reads the n-th value of a page of numbers.
func numbers(c *column, data encoding.Values) (func(n int) uint64, error) {
	switch data.Kind() {
	case encoding.Boolean:
		bits := data.Boolean()
		return func(n int) uint64 { return uint64(bits[n/8]>>(n%8)) & 1 }, nil
	case encoding.Int32:
		list := data.Int32()
		return func(n int) uint64 { return uint64(uint32(list[n])) }, nil
	case encoding.Int64:
		list := data.Int64()
		return func(n int) uint64 { return uint64(list[n]) }, nil
	}
	return nil, fmt.Errorf("column %s has another type than its field", c.name)
}

// addPairs takes the lists of a page.
func (v *vector) addPairs(page parquet.Page, row int, here []int32, some bool) error {
	data := page.Data()
	repeats, levels, list := page.RepetitionLevels(), page.DefinitionLevels(), data.Int64()
	value := 0
	all, began := make([]uint64, 0, len(list)), 0 // of the row that is read
	at := row - 1
	end := func() {
		switch {
		case at < row:
		case some && (len(here) == 0 || here[0] != int32(at)): // in the order of rows
		default:
			v.pairs = append(v.pairs, all[began:len(all):len(all)])
			if some {
				here = here[1:]
			}
		}
		began = len(all)
	}
	for i := range levels {
		if len(repeats) == 0 || repeats[i] == 0 {
			end()
			at++
		}
		if levels[i] > 0 {
			all = append(all, uint64(list[value]))
			value++
		}
	}
	end()
	return nil
}

// cell is the value at a place of a vector.
func (v *vector) cell(i int) (n uint64, b []byte, is bool) {
	switch {
	case v.same:
		if v.values() == 0 {
			return 0, nil, false
		}
		return v.value(0)
	case v.codes != nil:
		if code := v.codes[i]; code >= 0 {
			return v.value(int(code))
		}
		return 0, nil, false
	case v.missing != nil && v.missing[i]:
		return 0, nil, false
	}
	return v.numbers[i], nil, true
}

// at is the number of a row that is not missing.
func (v *vector) at(row int) uint64 {
	switch {
	case v.same:
		return v.numbers[0]
	case v.codes != nil:
		return v.numbers[v.codes[row]]
	}
	return v.numbers[row]
}

// value is one of the dictionary.
func (v *vector) value(code int) (n uint64, b []byte, is bool) {
	switch {
	case v.packed != nil:
		return 0, v.packed[code*addressBytes : (code+1)*addressBytes], true
	case v.bytes != nil:
		return 0, v.bytes[code], true
	}
	return v.numbers[code], nil, true
}

// addressOf is the address of 16 bytes.
func addressOf(b []byte, family uint8) netip.Addr {
	a := netip.AddrFrom16([16]byte(b))
	if family == 4 {
		return a.Unmap()
	}
	return a
}

// reading are the vectors of the columns that make records, at some rows.
type reading struct {
	columns []column
	vectors []*vector
}

// flowColumns are those that make a flow.
var flowColumns = []string{"iface", "netns", "direction", "family", "proto", "src", "sport", "dst", "dport", "unattributed", columnIfIndex, columnRepeated}

// named are the columns of some fields, and those that make a flow; nil: all.
func named(fields []string) func(c *column) bool {
	return func(c *column) bool {
		return fields == nil || slices.Contains(flowColumns, c.name) || slices.Contains(fields, c.name)
	}
}

// wanted are the columns that a plan needs. To find out again where packets were seen first, much of a record is
// needed, but no histograms, which take longest.
func (r *run) wanted() func(c *column) bool {
	named := named(r.plan.Fields())
	return func(c *column) bool { return named(c) || r.join && !c.pairs }
}

// load reads the columns of records that are wanted, at the given rows.
func (b *block) load(at []int32, wanted func(c *column) bool) (*reading, error) {
	var r reading
	for _, list := range lists() {
		for i := range list {
			c := &list[i]
			if c.name == columnInterval || c.ofOrigin() || !wanted(c) {
				continue
			}
			v, err := b.read(c, at)
			if err != nil {
				return nil, err
			}
			if v != nil {
				r.columns, r.vectors = append(r.columns, *c), append(r.vectors, v)
			}
		}
	}
	return &r, nil
}

// record makes the record at a place.
func (r *reading) record(i int, to *flow.Record) (repeated uint64, err error) {
	*to = flow.Record{}
	for n := range r.columns {
		c, v := &r.columns[n], r.vectors[n]
		if c.pairs {
			if pairs := v.pairs[i]; len(pairs) > 0 {
				if err := c.field.PutPairs(to, pairs); err != nil {
					return 0, err
				}
			}
			continue
		}
		number, bytes, is := v.cell(i)
		switch {
		case !is:
		case c.name == columnRepeated:
			repeated = number
		case c.name == columnIfIndex:
			to.IfIndex = uint32(number)
		default:
			if err := c.put(to, number, bytes); err != nil {
				return 0, err
			}
		}
	}
	return repeated, nil
}

// pieceRows is how many records are decoded at once.
const pieceRows = 1 << 13

// records calls each with the records at the given rows (nil: all), in their order. They have the wanted columns.
func (b *block) records(ctx context.Context, at []int32, wanted func(c *column) bool, each func(row int, r *flow.Record, repeated uint64)) error {
	if at == nil {
		at = make([]int32, b.rows)
		for i := range at {
			at[i] = int32(i)
		}
	}
	var r flow.Record
	for len(at) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		piece := at[:min(len(at), pieceRows)]
		at = at[len(piece):]
		from, err := b.load(piece, wanted)
		if err != nil {
			return err
		}
		for i, row := range piece {
			repeated, err := from.record(i, &r)
			if err != nil {
				return b.damaged(err)
			}
			each(int(row), &r, repeated)
		}
	}
	return nil
}
