package disk

import (
	"bytes"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/waymark-net/waymark/internal/flow"
)

// encoder makes the values of a column. In most columns, all values of a batch are the same, and those of the batch
// before: they are used again.
type encoder struct {
	*column
	index  int
	same   []parquet.Value // as many as a batch has; nil: none were made yet
	number uint64          // what they are
	text   []byte
	names  [][]byte // by number; nil: the values are no names
}

func newEncoder(c *column, index int) encoder {
	e := encoder{column: c, index: index}
	if c.field != nil && c.field.Kind == flow.Name {
		for _, name := range c.field.Values {
			e.names = append(e.names, []byte(name))
		}
	}
	return e
}

// space is memory for the values of a batch.
type space struct {
	records []flow.Record // of the entries
	values  []parquet.Value
	numbers [batchRows]uint64
	missing [batchRows]bool
	arena   []byte
}

// values are those of entries, until the next call.
func (c *encoder) values(entries []entry, s *space) []parquet.Value {
	s.values, s.arena = s.values[:0], s.arena[:0]
	switch {
	case c.same != nil && c.ofOrigin():
		return c.same[:len(entries)]
	case c.pairs:
		for i := range entries {
			s.values = c.pairValues(s.values, c.index, &entries[i])
		}
	case c.address():
		c.addresses(entries, s)
	case c.names != nil, c.column.number != nil:
		return c.numbers(entries, s)
	default:
		return c.texts(entries, s)
	}
	return s.values
}

// numbers are values of numbers, and of names.
func (c *encoder) numbers(entries []entry, s *space) []parquet.Value {
	list := s.numbers[:len(entries)]
	if c.optional {
		switch missing := c.present(s, list); {
		case missing == len(entries):
			return absent[:missing]
		case missing > 0:
			return c.partly(list, s)
		}
	} else {
		c.read(entries, list, s.records)
	}
	if n := list[0]; equal(list) {
		if c.same == nil || c.number != n {
			c.number = n
			c.repeat(c.valued(n))
		}
		return c.same[:len(entries)]
	}
	s.values = slices.Grow(s.values, len(list))[:len(list)]
	switch {
	case c.wide && !c.optional:
		for i, n := range list {
			s.values[i] = parquet.Int64Value(int64(n))
		}
	case c.names == nil && !c.flag && !c.wide:
		for i, n := range list {
			s.values[i] = c.leveled(parquet.Int32Value(int32(n)))
		}
	default:
		for i, n := range list {
			s.values[i] = c.valued(n)
		}
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

// partly are values of which some are missing.
func (c *encoder) partly(list []uint64, s *space) []parquet.Value {
	for i, n := range list {
		var v parquet.Value // missing
		if !s.missing[i] {
			v = c.valued(n)
		}
		s.values = append(s.values, v)
	}
	return s.values
}

func equal(list []uint64) bool {
	for _, n := range list {
		if n != list[0] {
			return false
		}
	}
	return true
}

// absent are values that are missing.
var absent [batchRows]parquet.Value

// texts are values of any text: names of hosts, interfaces and namespaces, which few batches have several of.
func (c *encoder) texts(entries []entry, s *space) []parquet.Value {
	same := c.same != nil
	for i := range entries {
		start := len(s.arena)
		s.arena = c.bytes(&entries[i], s.arena)
		text := s.arena[start:len(s.arena):len(s.arena)]
		if same = same && bytes.Equal(text, c.text); same {
			s.arena = s.arena[:start]
		}
		s.values = append(s.values, c.leveled(parquet.ByteArrayValue(text)))
	}
	if same {
		return c.same[:len(entries)]
	}
	c.text = append(c.text[:0], s.values[len(s.values)-1].ByteArray()...)
	c.repeat(c.leveled(parquet.ByteArrayValue(c.text)))
	return s.values
}

func (c *encoder) addresses(entries []entry, s *space) {
	s.values = slices.Grow(s.values, len(entries))[:len(entries)]
	s.arena = slices.Grow(s.arena, addressBytes*len(entries))[:addressBytes*len(entries)]
	for i := range entries {
		if e := &entries[i]; c.optional && c.field.Missing(e.Record) {
			s.values[i] = parquet.Value{}
		} else {
			s.values[i] = c.leveled(parquet.FixedLenByteArrayValue(c.bytes(e, s.arena[addressBytes*i:][:0:addressBytes])))
		}
	}
}

// repeat makes the values of batches in which all are the same.
func (c *encoder) repeat(v parquet.Value) {
	if c.same == nil {
		c.same = make([]parquet.Value, batchRows)
	}
	for i := range c.same {
		c.same[i] = v
	}
}

// valued is the value of a number, or of the name that it stands for.
func (c *encoder) valued(n uint64) parquet.Value {
	var v parquet.Value
	switch {
	case c.names != nil:
		v = parquet.ByteArrayValue(c.names[n])
	case c.flag:
		v = parquet.BooleanValue(n != 0)
	case c.wide:
		v = parquet.Int64Value(int64(n))
	default:
		v = parquet.Int32Value(int32(n))
	}
	return c.leveled(v)
}

// leveled sets the levels of a value where they are not 0: setting them takes as long as making the value.
func (c *encoder) leveled(v parquet.Value) parquet.Value {
	if c.optional {
		return v.Level(0, 1, c.index)
	}
	return v
}
