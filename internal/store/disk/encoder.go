package disk

import (
	"encoding/binary"

	"github.com/parquet-go/parquet-go"

	"github.com/waymark-net/waymark/internal/flow"
)

// encoder makes the values of a column.
type encoder struct {
	*column
	index int
	coder *coder        // nil: the column has no dictionary
	plain *plainNumbers // nil: the column has one, or is not of numbers of 64 bits
	names [][]byte      // by number; nil: the values are no names
}

func newEncoder(c *column) encoder {
	e := encoder{column: c}
	switch {
	case c.coded():
		e.coder = newCoder(c)
	case c.wide && !c.pairs:
		e.plain = &plainNumbers{}
	}
	if c.field != nil && c.field.Kind == flow.Name {
		for _, name := range c.field.Values {
			e.names = append(e.names, []byte(name))
		}
	}
	return e
}

// node is that of the column, whose values the encoder makes.
func (c *encoder) node() parquet.Node {
	switch {
	case c.coder != nil:
		return handedNode{c.column.node, c.coder}
	case c.plain != nil:
		return handedNode{c.column.node, c.plain}
	}
	return c.column.node
}

// space is memory for the values of a batch.
type space struct {
	records []flow.Record // of the entries
	values  []parquet.Value
	numbers [batchRows]uint64
	missing [batchRows]bool
	words   [batchRows][2]uint64
	arena   []byte
}

// values are those of entries, until the next call. Where the library takes them from elsewhere, they say no more than
// which are missing.
func (c *encoder) values(entries []entry, s *space) []parquet.Value {
	s.values, s.arena = s.values[:0], s.arena[:0]
	if c.coder != nil {
		c.coder.begin()
	}
	switch {
	case c.pairs:
		for i := range entries {
			s.values = c.pairValues(s.values, c.index, &entries[i])
		}
		return s.values
	case c.address():
		return c.addresses(entries, s)
	case c.names != nil, c.column.number != nil:
		return c.numbers(entries, s)
	}
	return c.texts(entries, s)
}

// numbers are values of numbers, and of names.
func (c *encoder) numbers(entries []entry, s *space) []parquet.Value {
	list, missing := s.numbers[:len(entries)], 0
	if c.optional {
		if missing = c.present(s, list); missing == len(entries) {
			return absent[:missing]
		}
	} else {
		c.read(entries, list, s.records)
	}
	if c.flag {
		return c.flags(list, missing, s)
	}
	levels := c.levels(len(list), missing, s)
	if missing > 0 {
		there := list[:0]
		for i, n := range list {
			if !s.missing[i] {
				there = append(there, n)
			}
		}
		list = there
	}
	switch {
	case c.plain != nil:
		c.plain.next = list
	case equal(list):
		c.coder.number(list[0], c.names)
		c.coder.again(len(list) - 1)
	default:
		for _, n := range list {
			c.coder.number(n, c.names)
		}
	}
	return levels
}

func (c *encoder) flags(list []uint64, missing int, s *space) []parquet.Value {
	for i, n := range list {
		var v parquet.Value
		switch is := missing == 0 || !s.missing[i]; {
		case is && c.optional:
			v = parquet.BooleanValue(n != 0).Level(0, 1, c.index)
		case is:
			v = parquet.BooleanValue(n != 0)
		}
		s.values = append(s.values, v)
	}
	return s.values
}

// levels are values of which the library reads no more than whether they are missing.
func (c *encoder) levels(n, missing int, s *space) []parquet.Value {
	switch {
	case !c.optional:
		return absent[:n]
	case missing == 0:
		return present[:n]
	}
	for _, is := range s.missing[:n] {
		v := present[0]
		if is {
			v = parquet.Value{}
		}
		s.values = append(s.values, v)
	}
	return s.values
}

// read reads the numbers of entries.
func (c *encoder) read(entries []entry, to []uint64, records []flow.Record) {
	if c.field != nil && (c.field.Uint != nil || c.field.Nanos != nil) {
		c.field.Numbers(records[:len(to)], to)
		return
	}
	for i := range entries {
		if i > 0 && c.ofOrigin() {
			to[i] = to[0]
			continue
		}
		to[i] = c.column.number(&entries[i])
	}
}

// present reads the numbers of records, and returns how many have none.
func (c *encoder) present(s *space, to []uint64) (missing int) {
	for i := range to {
		if s.missing[i] = c.field.Missing(&s.records[i]); s.missing[i] {
			missing++
		}
	}
	if missing < len(to) {
		c.field.Numbers(s.records[:len(to)], to)
	}
	return missing
}

func equal(list []uint64) bool {
	for _, n := range list {
		if n != list[0] {
			return false
		}
	}
	return true
}

// absent are values that are missing, present some that are not.
var (
	absent  [batchRows]parquet.Value
	present = func() (list [batchRows]parquet.Value) {
		for i := range list {
			list[i] = parquet.BooleanValue(true).Level(0, 1, 0)
		}
		return list
	}()
)

// texts are values of any text: names of hosts, interfaces and namespaces, which few batches have several of.
func (c *encoder) texts(entries []entry, s *space) []parquet.Value {
	for i := range entries {
		s.arena = c.bytes(&entries[i], s.arena[:0])
		if c.coder.text(s.arena); c.ofOrigin() {
			c.coder.again(len(entries) - 1)
			break
		}
	}
	return c.levels(len(entries), 0, s)
}

func (c *encoder) addresses(entries []entry, s *space) []parquet.Value {
	missing, list := 0, s.words[:0]
	for i := range entries {
		r := entries[i].Record
		if s.missing[i] = c.optional && c.field.Missing(r); s.missing[i] {
			missing++
			continue
		}
		a := c.field.Addr(r).As16()
		list = append(list, [2]uint64{binary.BigEndian.Uint64(a[:]), binary.BigEndian.Uint64(a[8:])})
	}
	c.coder.addresses(list)
	return c.levels(len(entries), missing, s)
}
