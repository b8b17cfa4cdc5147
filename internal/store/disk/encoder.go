package disk

import (
	"github.com/parquet-go/parquet-go"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// encoder makes the values of a column.
type encoder struct {
	*column
	index int
	from  int           // column of blocks that has the numbers; −1: none
	coder *coder        // nil: the column has no dictionary
	plain *plainNumbers // nil: the column has one, or is not of numbers of 64 bits
	names [][]byte      // by number; nil: the values are no names
}

func newEncoder(c *column) encoder {
	e := encoder{column: c, from: -1}
	switch {
	case c.field != nil:
		e.from = store.Column(c.field)
	case c.name == columnRepeated:
		e.from = store.ColumnRepeated
	}
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

// space is a block, and memory for its values.
type space struct {
	origin  flow.Origin
	from    int64 // when the interval began, where that is a column
	before  int   // rows of the interval in front of the block, likewise
	block   *store.Block
	records []flow.Record // as far as it has them
	values  []parquet.Value
	numbers [batchRows]uint64
	missing [batchRows]bool
	words   [batchRows][2]uint64
	arena   []byte
}

// entry is a record with what files have in addition.
func (s *space) entry(row int) entry {
	return entry{&s.records[row], &s.origin, s.block.Interval(), s.from, s.before + row}
}

// values are those of the block, until the next call. Where the library takes them from elsewhere, they say no more than
// which are missing.
func (c *encoder) values(s *space) []parquet.Value {
	s.values, s.arena = s.values[:0], s.arena[:0]
	if c.coder != nil {
		c.coder.begin()
	}
	switch {
	case c.pairs:
		for i := range s.records {
			s.values = c.pairValues(s.values, c.index, &s.records[i])
		}
		return s.values
	case c.address():
		return c.addresses(s)
	case c.names != nil, c.bytes == nil:
		return c.numbers(s)
	}
	return c.texts(s)
}

// numbers are values of numbers, and of names.
func (c *encoder) numbers(s *space) []parquet.Value {
	missing := c.missing(s)
	if missing == len(s.records) {
		return absent[:missing]
	}
	list, same := c.read(s)
	if c.flag {
		return c.flags(list, missing, s)
	}
	levels := c.levels(len(list), missing, s)
	if missing > 0 {
		there := s.numbers[:0]
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
	case same:
		c.coder.number(list[0], c.names)
		c.coder.again(len(list) - 1)
	default:
		c.coder.ofNumbers(list, c.names)
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

// read reads the numbers of all rows; same: all are the first one.
func (c *encoder) read(s *space) (list []uint64, same bool) {
	if c.from >= 0 {
		return s.block.Numbers(c.from)
	}
	list = s.numbers[:len(s.records)]
	if c.field != nil && c.field.Uint != nil {
		c.field.Numbers(s.records, list)
		return list, false
	}
	same = c.sameIn(s)
	for i := range list {
		if i > 0 && same {
			list[i] = list[0]
			continue
		}
		e := s.entry(i)
		list[i] = c.column.number(&e)
	}
	return list, same
}

// sameIn reports whether all rows of a block have the same, without a look at them.
func (c *encoder) sameIn(s *space) bool {
	return c.name == columnInterval || c.name == columnTime || c.ofOrigin() || c.ofPlace() && s.block.OnePlace()
}

// missing finds out which rows have no value, and returns how many.
func (c *encoder) missing(s *space) (n int) {
	if !c.optional {
		return 0
	}
	for i := range s.records {
		if s.missing[i] = c.field.Missing(&s.records[i]); s.missing[i] {
			n++
		}
	}
	return n
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

// texts are values of any text: names of hosts, interfaces and namespaces, which few blocks have several of.
func (c *encoder) texts(s *space) []parquet.Value {
	for i := range s.records {
		e := s.entry(i)
		s.arena = c.bytes(&e, s.arena[:0])
		if c.coder.text(s.arena); c.sameIn(s) {
			c.coder.again(len(s.records) - 1)
			break
		}
	}
	return c.levels(len(s.records), 0, s)
}

func (c *encoder) addresses(s *space) []parquet.Value {
	missing, list := c.missing(s), s.words[:0]
	high, low := s.block.Addresses(c.field)
	for i := range high {
		if missing == 0 || !s.missing[i] {
			list = append(list, [2]uint64{high[i], low[i]})
		}
	}
	c.coder.addresses(list)
	return c.levels(len(high), missing, s)
}
