package disk

import (
	"encoding/binary"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// Ranks implements query.Ranker: columns are read alone where it need not be found out again where
// packets were seen first.
func (e *engine) Ranks(p *query.Plan) bool {
	g := query.NewGrouping(p)
	return len(e.segments) > 0 && !joins(g, p)
}

// local are the groups of a block's rows: a number for each row that is asked for.
type local struct {
	at     []int32
	groups []int32
	firsts []int32 // a row of each group
	keys   []*column
	values []*vector
}

// groupsOf numbers the groups of rows by their keys.
func (r *run) groupsOf(b *block, at []int32) (*local, error) {
	l := &local{at: at, groups: make([]int32, len(at))}
	count := 1
	for _, name := range r.grouping.Columns() {
		c := columnNamed(name)
		v, err := b.whole(c)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		l.keys, l.values = append(l.keys, c), append(l.values, v)
		codes, n := r.codes(c, v)
		if n > 1 {
			count = combine(l.groups, at, codes, n, count)
		}
	}
	l.firsts = make([]int32, count)
	for i := len(at) - 1; i >= 0; i-- {
		l.firsts[l.groups[i]] = at[i]
	}
	return l, nil
}

// record makes the keys of a group.
func (l *local) record(group int, r *flow.Record) error {
	*r = flow.Record{}
	row := int(l.firsts[group])
	for i, c := range l.keys {
		if n, bytes, is := l.values[i].cell(row); is {
			if err := c.put(r, n, bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// codes are the values of a column by row, as numbers below n. Addresses that a key cuts to
// one prefix have one number.
func (r *run) codes(c *column, v *vector) (codes []int32, n int) {
	if !v.dictionary() {
		return numberOf(v)
	}
	table := make([]int32, v.values()+1) // the first one is that of rows without a value
	if bits4, bits6, whole := r.grouping.Cut(c.name); !whole {
		index := map[[16]byte]int32{}
		for code := range v.values() {
			key := prefixOf(v.bytes[code], bits4, bits6)
			known, ok := index[key]
			if !ok {
				known = int32(len(index) + 1)
				index[key] = known
			}
			table[code+1] = known
		}
		n = len(index) + 1
	} else {
		n = v.values() + 1
		for code := range table {
			table[code] = int32(code)
		}
	}
	codes = make([]int32, len(v.codes))
	for i, code := range v.codes {
		codes[i] = table[code+1]
	}
	if !c.optional { // no row is without a value
		n--
		for i := range codes {
			codes[i]--
		}
	}
	return codes, n
}

// numberOf numbers the values of a column without a dictionary.
func numberOf(v *vector) ([]int32, int) {
	if v.missing == nil && !slices.ContainsFunc(v.numbers, func(n uint64) bool { return n != v.numbers[0] }) {
		return nil, 1
	}
	index := map[uint64]int32{}
	codes := make([]int32, len(v.numbers))
	for i, n := range v.numbers {
		if v.missing != nil && v.missing[i] {
			continue
		}
		code, ok := index[n]
		if !ok {
			code = int32(len(index) + 1)
			index[n] = code
		}
		codes[i] = code
	}
	return codes, len(index) + 1
}

// prefixOf cuts an address of 16 bytes. IPv4 is mapped to IPv6; an IPv6 address that looks so is
// distinguished by its family, and by no more bits than it has: it is cut less than it may be.
func prefixOf(b []byte, bits4, bits6 int) (out [16]byte) {
	bits := bits6
	if binary.BigEndian.Uint64(b) == 0 && binary.BigEndian.Uint32(b[8:]) == 0xffff {
		bits = max(96+bits4, bits6)
	}
	copy(out[:], b[:bits/8])
	if rest := bits % 8; rest > 0 {
		out[bits/8] = b[bits/8] &^ (0xff >> rest)
	}
	return out
}

// combine numbers the pairs of a group and a code, and returns how many there are.
func combine(groups, at, codes []int32, values, count int) int {
	if size := count * values; size <= 8*len(at)+1<<10 {
		table := make([]int32, size)
		n := int32(0)
		for i, row := range at {
			cell := &table[int(groups[i])*values+int(codes[row])]
			if *cell == 0 {
				n++
				*cell = n
			}
			groups[i] = *cell - 1
		}
		return int(n)
	}
	index := map[uint64]int32{}
	for i, row := range at {
		key := uint64(groups[i])<<32 | uint64(codes[row])
		n, ok := index[key]
		if !ok {
			n = int32(len(index))
			index[key] = n
		}
		groups[i] = n
	}
	return len(index)
}

// chosen leaves of rows those of groups that are meant.
func (r *run) chosen(b *block, at []int32) ([]int32, error) {
	l, err := r.groupsOf(b, at)
	if err != nil {
		return nil, err
	}
	meant := make([]bool, len(l.firsts))
	var record flow.Record
	for g := range meant {
		if err := l.record(g, &record); err != nil {
			return nil, err
		}
		meant[g] = r.grouping.Means(&record)
	}
	kept := at[:0]
	for i, row := range at {
		if meant[l.groups[i]] {
			kept = append(kept, row)
		}
	}
	return kept, nil
}

// rank adds the counter of the plan, and the sums of all rows.
func (r *run) rank(b *block) error {
	at, err := r.at(b, false)
	if err != nil || len(at) == 0 {
		return err
	}
	l, err := r.groupsOf(b, at)
	if err != nil {
		return err
	}
	m := &rankMeta{block: b, idle: r.grouping.Idle(), once: r.grouping.Once()}
	if err := m.read(); err != nil {
		return err
	}
	v, err := b.whole(columnNamed(r.plan.Ranking().Name))
	if err != nil {
		return err
	}
	sums := make([]uint64, len(l.firsts))
	records := make([]uint64, len(l.firsts))
	for i, row := range at {
		n, g := v.at(int(row)), l.groups[i]
		again := m.again(int(row))
		if again > 0 && m.once {
			n -= flow.Portion(n, again, m.packets.at(int(row)))
		}
		sums[g] += n
		if again == 0 || !m.once || again < m.packets.at(int(row)) {
			records[g]++
		}
	}
	var record flow.Record
	for g := range sums {
		if err := l.record(g, &record); err != nil {
			return err
		}
		r.groups.Rank(&record, r.plan.Bucket(b.segment.began()), r.plan.Ranking(), sums[g], records[g])
	}
	return r.total(b, at, m)
}

// rankMeta is which packets of a block's rows are repeated.
type rankMeta struct {
	*block
	idle, once        bool
	packets, repeated *vector // nil: no packet is
}

func (m *rankMeta) read() (err error) {
	if m.idle || m.segment.groups[m.number].Repeated.Packets == 0 {
		return nil
	}
	if m.packets, err = m.whole(columnNamed("packets")); err != nil {
		return err
	}
	m.repeated, err = m.whole(&columns[indexRepeated])
	return err
}

// again is how many packets of a row were seen before.
func (m *rankMeta) again(row int) uint64 {
	if m.repeated == nil {
		return 0
	}
	return min(m.repeated.at(row), m.packets.at(row))
}

// total adds the sums of all rows that are asked for: those of the whole block are known.
func (r *run) total(b *block, at []int32, m *rankMeta) error {
	if known := &b.segment.groups[b.number]; len(at) == b.rows {
		s := query.Sums{Records: known.Records, Total: known.Total, Repeated: known.Repeated}
		if m.idle {
			s.Records = uint64(b.rows)
			s.Total.Add(&known.Repeated)
			s.Repeated = flow.Counters{}
		} else if !m.once {
			s.Records = uint64(b.rows)
		}
		r.sums.Add(&s)
		return nil
	}
	var counters []*vector
	for i := range flow.CounterFields {
		v, err := b.whole(columnNamed(flow.CounterFields[i].Name))
		if err != nil {
			return err
		}
		counters = append(counters, v)
	}
	for _, row := range at {
		var c flow.Counters
		for i := range counters {
			*flow.CounterFields[i].Counter(&c) = counters[i].at(int(row))
		}
		again := flow.Counters{}
		if n := m.again(int(row)); n > 0 {
			again = c.Share(n)
		}
		if all := c.Packets; !m.once || all == 0 || again.Packets < all {
			r.sums.Records++
		}
		c.Subtract(&again)
		r.sums.Total.Add(&c)
		r.sums.Repeated.Add(&again)
	}
	return nil
}
