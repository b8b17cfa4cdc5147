package disk

import (
	"bytes"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// folded are the ends of a block's rows after the plan turned them: no record is made.
type folded struct {
	turned  []int32 // by row: 1 where source and destination are exchanged
	vectors map[string]*vector
}

// endColumns are what decides which way a row is turned.
var endColumns = []string{"unattributed", "family", "proto", "direction", "initiator", "sport", "dport"}

// side is one of these columns: a value for each code or row.
type side struct {
	codes  []int32 // nil: all rows have the first value
	values []uint16
}

func (s *side) at(row int32) uint16 {
	if s.codes == nil {
		return s.values[0]
	}
	return s.values[s.codes[row]+1]
}

// fold turns the rows of a block; nil: the plan turns none.
func (c *counts) fold(b *block, at []int32) (*folded, error) {
	by := &c.run.plan.By
	if !by.Folds() {
		return nil, nil
	}
	sides := make([]side, len(endColumns))
	for i, name := range endColumns {
		var err error
		if sides[i], err = b.side(columnNamed(name)); err != nil {
			return nil, err
		}
	}
	src, err := b.whole(columnNamed("src"))
	if err != nil {
		return nil, err
	}
	dst, err := b.whole(columnNamed("dst"))
	if err != nil {
		return nil, err
	}
	f := &folded{turned: b.memory.codes(b.rows)}
	sport, dport := b.memory.codes(b.rows), b.memory.codes(b.rows)
	var row int32
	less := func() bool { return bytes.Compare(dst.addressAt(row), src.addressAt(row)) < 0 }
	for _, row = range at {
		e := query.Ends{
			Unattributed: sides[0].at(row) != 0, Proto: uint8(sides[2].at(row)), Direction: flow.Direction(sides[3].at(row)), Initiator: flow.Initiator(sides[4].at(row)),
			SrcPort: sides[5].at(row), DstPort: sides[6].at(row),
		}
		e.ICMP = e.Proto == 1 && sides[1].at(row) == 4 || e.Proto == 58 && sides[1].at(row) == 6
		f.turned[row] = 0
		if by.Turn(&e, less) {
			f.turned[row] = 1
		}
		sport[row], dport[row] = int32(e.SrcPort), int32(e.DstPort)
	}
	f.vectors = map[string]*vector{
		"sport": {codes: sport, numbers: allPorts}, "dport": {codes: dport, numbers: allPorts},
		"src": f.ends(b, at, src, dst), "dst": f.ends(b, at, dst, src),
	}
	return f, nil
}

// side reads such a column; where it is missing, it is 0.
func (b *block) side(c *column) (s side, err error) {
	v, err := b.whole(c)
	if err != nil || v == nil {
		return side{values: []uint16{0}}, err
	}
	if v.codes == nil && !v.same { // flags have no dictionary
		s.codes, s.values = b.memory.codes(b.rows), []uint16{0, 0, 1}
		for i, n := range v.numbers {
			s.codes[i] = int32(n & 1)
		}
		return s, nil
	}
	s.codes, s.values = v.codes, make([]uint16, 1, v.values()+1) // the first is that of missing values
	for code := range v.values() {
		n, text, _ := v.value(code)
		if text != nil {
			n = uint64(max(0, slices.Index(c.field.Values, string(text))))
		}
		s.values = append(s.values, uint16(n))
	}
	if v.same {
		s.values = s.values[len(s.values)-1:]
	}
	return s, nil
}

// addressAt is that of a row; without one, nil.
func (v *vector) addressAt(row int32) []byte {
	code := int32(0)
	switch {
	case v == nil || v.same && len(v.packed) == 0:
		return nil
	case !v.same:
		if code = v.codes[row]; code < 0 {
			return nil
		}
	}
	return v.packed[int(code)*addressBytes:][:addressBytes]
}

// allPorts is the dictionary of ports that were turned: each is its own code.
var allPorts = func() []uint64 {
	list := make([]uint64, 1<<16)
	for i := range list {
		list[i] = uint64(i)
	}
	return list
}()

// ends is the column of the one end, with the values of the other one where rows are turned.
func (f *folded) ends(b *block, at []int32, own, other *vector) *vector {
	if own == nil || other == nil {
		return own
	}
	v := &vector{codes: b.memory.codes(b.rows), packed: make([]byte, 0, len(own.packed)+len(other.packed)), nulls: true}
	v.packed = append(append(v.packed, own.packed...), other.packed...)
	for _, row := range at {
		from, first := own, int32(0)
		if f.turned[row] != 0 {
			from, first = other, int32(own.values())
		}
		switch {
		case from.same && from.values() == 0:
			v.codes[row] = -1
		case from.same:
			v.codes[row] = first
		case from.codes[row] < 0:
			v.codes[row] = -1
		default:
			v.codes[row] = first + from.codes[row]
		}
	}
	return v
}

// column is that of a key as the rows were turned.
func (f *folded) column(b *block, c *column) (*vector, error) {
	if f != nil && f.vectors[c.name] != nil {
		return f.vectors[c.name], nil
	}
	return b.whole(c)
}

// addTurned is add where rows are turned: what these count is of the way back, too.
func (c *counts) addTurned(f *folded, vectors []*vector, m *again, at, ids []int32) {
	for i, row := range at {
		if ids[i] < 0 {
			continue
		}
		to := c.sums[int(ids[i])*c.stride:][:c.stride]
		if !m.once || !m.all(int(row)) {
			to[0]++
		}
		for n, v := range vectors {
			x := m.counting(v.at(int(row)), int(row))
			to[1+n] += x
			if f.turned[row] != 0 {
				to[1+len(vectors)+n] += x
			}
		}
	}
}
