package disk

import (
	"bytes"
	"net/netip"

	"github.com/parquet-go/parquet-go"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
)

// selection is which rows of a block match.
type selection func(b *block) (matched, error)

// matched are rows: those that are marked with 1; without marks, all or none.
type matched struct {
	rows []byte
	all  bool
}

func (m matched) none() bool { return m.rows == nil && !m.all }

// next is the first row from one on that matches; to: there is none in front of it.
func (m matched) next(from, to int) int {
	if m.all || from >= to {
		return from
	}
	if i := bytes.IndexByte(m.rows[from:to], 1); i >= 0 {
		return from + i
	}
	return to
}

// mark is how matched has a row.
func mark(is bool) (n byte) {
	if is {
		n = 1
	}
	return n
}

func (m matched) not() matched {
	for i := range m.rows {
		m.rows[i] ^= 1
	}
	m.all = m.rows == nil && !m.all
	return m
}

// either are the rows of both.
func (m matched) either(o matched) matched {
	switch {
	case m.all || o.none():
		return m
	case o.all || m.none():
		return o
	}
	for i, is := range o.rows {
		m.rows[i] |= is
	}
	return m
}

// both are the rows that are in both.
func (m matched) both(o matched) matched {
	switch {
	case m.none() || o.all:
		return m
	case o.none() || m.all:
		return o
	}
	for i, is := range o.rows {
		m.rows[i] &= is
	}
	return m
}

// selections is the target of columns: each test is done once for each value of a dictionary.
func selections() filter.Target[selection] {
	return filter.Target[selection]{
		Or: func(list []selection) selection {
			return func(b *block) (m matched, err error) {
				for _, s := range list {
					var o matched
					if o, err = s(b); err != nil || o.all {
						return o, err
					}
					m = m.either(o)
				}
				return m, nil
			}
		},
		And: func(list []selection) selection {
			return func(b *block) (matched, error) {
				m := matched{all: true}
				for _, s := range list {
					o, err := s(b)
					if err != nil || o.none() {
						return o, err
					}
					m = m.both(o)
				}
				return m, nil
			}
		},
		Not: func(s selection) selection {
			return func(b *block) (matched, error) {
				m, err := s(b)
				return m.not(), err
			}
		},
		Test: func(t *filter.Test) selection {
			c := columnNamed(t.Field.Name)
			match := matcher(t, c)
			return func(b *block) (matched, error) { return b.test(t, c, match) }
		},
	}
}

// test does a test on every row.
func (b *block) test(t *filter.Test, c *column, match func(uint64, []byte) bool) (matched, error) {
	if b.outside(t, c) {
		return matched{}, nil
	}
	var table []byte // of each value of a dictionary, behind that of a missing one
	v, err := b.wholeIf(c, func(v *vector) bool {
		if c.address() && t.Op == filter.OpWithin {
			p := prefixOf(t.Prefix)
			table = p.table(v, b.memory)
		} else {
			table = v.table(b.memory, match)
		}
		return bytes.IndexByte(table, 1) >= 0
	})
	switch {
	case err != nil:
		return matched{}, err
	case v == nil: // no record of the file has one
		return matched{all: !c.optional && match(0, nil)}, nil
	case v.same:
		n, text, is := v.cell(0)
		m := matched{all: is && match(n, text)}
		return m, b.ofFamily(t, &m)
	case c.coded() && v.codes == nil: // nor is there a value that matches
		return matched{}, nil
	}
	m := matched{rows: b.memory.marks(b.rows)}
	if !c.coded() {
		for i, n := range v.numbers {
			m.rows[i] = mark((v.missing == nil || !v.missing[i]) && match(n, nil))
		}
		return m, nil
	}
	for i, code := range v.codes {
		m.rows[i] = table[code+1]
	}
	return m, b.ofFamily(t, &m)
}

// outside reports whether the least and the largest address of a block say that none is within the prefix.
func (b *block) outside(t *filter.Test, c *column) bool {
	if !c.address() || t.Op != filter.OpWithin {
		return false
	}
	chunk, ok := b.chunk(c).(*parquet.FileColumnChunk)
	if !ok {
		return false
	}
	low, high, ok := chunk.Bounds()
	if !ok || len(low.ByteArray()) != addressBytes || len(high.ByteArray()) != addressBytes {
		return false
	}
	first, last := bounds(t.Prefix)
	return bytes.Compare(high.ByteArray(), first[:]) < 0 || bytes.Compare(low.ByteArray(), last[:]) > 0
}

// bounds are the first and the last address of a prefix, as files have them.
func bounds(p netip.Prefix) (first, last [addressBytes]byte) {
	first = p.Masked().Addr().As16()
	last = first
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	for i := bits; i < 8*addressBytes; i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	return first, last
}

// table is which values of a dictionary match; the first one is that of a value that is missing.
func (v *vector) table(m *memory, match func(uint64, []byte) bool) []byte {
	table := m.marks(v.values() + 1)
	table[0] = 0
	for code := range v.values() {
		n, text, _ := v.value(code)
		table[code+1] = mark(match(n, text))
	}
	return table
}

// ofFamily leaves of rows whose address matches those of the family of the prefix: IPv4 addresses
// are stored mapped to IPv6.
func (b *block) ofFamily(t *filter.Test, m *matched) error {
	if t.Field.Kind != flow.Address || t.Op != filter.OpWithin || m.none() {
		return nil
	}
	want := uint64(6)
	if t.Prefix.Addr().Is4() {
		want = 4
	}
	if at := b.marked(m); at != nil {
		return b.fewOfFamily(m, at, want)
	}
	v, err := b.whole(columnNamed("family"))
	if err != nil {
		return err
	}
	if v.same {
		if v.at(0) != want {
			*m = matched{}
		}
		return nil
	}
	if m.all {
		*m = matched{rows: b.memory.marks(b.rows)}
		for i := range m.rows {
			m.rows[i] = 1
		}
	}
	for i, code := range v.codes {
		m.rows[i] &= mark(v.numbers[code] == want)
	}
	return nil
}

// marked are the rows that match, where they are few; nil: they are many, or all.
func (b *block) marked(m *matched) []int32 {
	if m.rows == nil {
		return nil
	}
	at := b.memory.codes(b.rows / fewRows)[:0]
	for row := m.next(0, b.rows); row < b.rows; row = m.next(row+1, b.rows) {
		if len(at) == cap(at) {
			return nil
		}
		at = append(at, int32(row))
	}
	return at
}

// fewOfFamily is ofFamily of few rows: pages without them are not read.
func (b *block) fewOfFamily(m *matched, at []int32, want uint64) error {
	if len(at) == 0 {
		*m = matched{}
		return nil
	}
	v, err := b.read(columnNamed("family"), at)
	if err != nil {
		return err
	}
	for i, row := range at {
		m.rows[row] = mark(v.at(i) == want)
	}
	return nil
}

// matcher compares a value of a column.
func matcher(t *filter.Test, c *column) func(n uint64, b []byte) bool {
	number, text := t.Number(), t.String()
	switch {
	case t.Op == filter.OpPresent:
		return func(uint64, []byte) bool { return true }
	case c.address():
		p := prefixOf(t.Prefix)
		return func(_ uint64, b []byte) bool { return p.has(b) }
	case c.field.Kind == flow.Name:
		return func(_ uint64, b []byte) bool {
			for i, v := range c.field.Values {
				if v == string(b) {
					return number(uint64(i))
				}
			}
			return false
		}
	case c.bytes != nil:
		return func(_ uint64, b []byte) bool { return text(string(b)) }
	}
	return func(n uint64, _ []byte) bool { return number(n) }
}

// columnNamed finds the column of a field.
func columnNamed(name string) *column {
	for _, list := range lists() {
		for i := range list {
			if list[i].name == name {
				return &list[i]
			}
		}
	}
	panic("disk: no column " + name) // TestEveryFieldHasAColumn
}
