package disk

import (
	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
)

// selection is which rows of a block match.
type selection func(b *block) ([]bool, error)

// may is what is known of a block without its rows: some may match, all do.
type may struct{ some, all bool }

// selections is the target of columns: each test is done once for each value of a dictionary.
func selections() filter.Target[selection] {
	join := func(list []selection, empty bool, add func(a, b bool) bool) selection {
		return func(b *block) ([]bool, error) {
			out := make([]bool, b.rows)
			for i := range out {
				out[i] = empty
			}
			for _, s := range list {
				part, err := s(b)
				if err != nil {
					return nil, err
				}
				for i := range out {
					out[i] = add(out[i], part[i])
				}
			}
			return out, nil
		}
	}
	return filter.Target[selection]{
		Or:  func(list []selection) selection { return join(list, false, func(a, b bool) bool { return a || b }) },
		And: func(list []selection) selection { return join(list, true, func(a, b bool) bool { return a && b }) },
		Not: func(s selection) selection { return join([]selection{s}, true, func(_, b bool) bool { return !b }) },
		Test: func(t *filter.Test) selection {
			c := columnNamed(t.Field.Name)
			return func(b *block) ([]bool, error) { return b.test(t, c) }
		},
	}
}

// test does a test on every row.
func (b *block) test(t *filter.Test, c *column) ([]bool, error) {
	out := make([]bool, b.rows)
	v, err := b.whole(c)
	if err != nil {
		return nil, err
	}
	match := matcher(t, c)
	if v == nil { // no record of the file has one
		missing := !c.optional && match(0, nil)
		for i := range out {
			out[i] = missing
		}
		return out, nil
	}
	if !v.dictionary() {
		for i, n := range v.numbers {
			out[i] = (v.missing == nil || !v.missing[i]) && match(n, nil)
		}
		return out, nil
	}
	table := make([]bool, v.values())
	for code := range table {
		n, bytes, _ := v.value(code)
		table[code] = match(n, bytes)
	}
	for i, code := range v.codes {
		out[i] = code >= 0 && table[code]
	}
	if c.field.Kind == flow.Address {
		return out, b.ofFamily(t, out)
	}
	return out, nil
}

// ofFamily leaves of rows whose address matches those of the family of the prefix: IPv4 addresses
// are stored mapped to IPv6.
func (b *block) ofFamily(t *filter.Test, out []bool) error {
	v, err := b.whole(columnNamed("family"))
	if err != nil {
		return err
	}
	want := uint64(6)
	if t.Prefix.Addr().Is4() {
		want = 4
	}
	for i, code := range v.codes {
		out[i] = out[i] && v.numbers[code] == want
	}
	return nil
}

// matcher compares a value of a column.
func matcher(t *filter.Test, c *column) func(n uint64, b []byte) bool {
	number, text, address := t.Number(), t.String(), t.Address()
	switch {
	case t.Op == filter.OpPresent:
		return func(uint64, []byte) bool { return true }
	case c.field.Kind == flow.Address:
		family := uint8(6)
		if t.Prefix.Addr().Is4() {
			family = 4
		}
		return func(_ uint64, b []byte) bool { return address(addressOf(b, family)) } // see ofFamily
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

// prune is the target that decides by dictionaries whether a block has to be read.
func prune(b *block) filter.Target[may] {
	return filter.Target[may]{
		Or: func(list []may) may {
			var m may
			for _, x := range list {
				m.some, m.all = m.some || x.some, m.all || x.all
			}
			return m
		},
		And: func(list []may) may {
			m := may{true, true}
			for _, x := range list {
				m.some, m.all = m.some && x.some, m.all && x.all
			}
			return m
		},
		Not:  func(m may) may { return may{!m.all, !m.some} },
		Test: func(t *filter.Test) may { return b.may(t) },
	}
}

// may does a test on the values of a dictionary.
func (b *block) may(t *filter.Test) may {
	c := columnNamed(t.Field.Name)
	chunk := b.chunk(c)
	if chunk == nil {
		missing := !c.optional && matcher(t, c)(0, nil)
		return may{missing, missing}
	}
	v, err := b.dictionary(c, chunk)
	if err != nil || v == nil {
		return may{some: true} // reading it will tell
	}
	match := matcher(t, c)
	m := may{all: !c.optional}
	for code := range v.values() {
		n, bytes, _ := v.value(code)
		if match(n, bytes) {
			m.some = true
		} else {
			m.all = false
		}
	}
	m.all = m.all && c.field.Kind != flow.Address
	return m
}
