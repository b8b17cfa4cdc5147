package disk

import (
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// again is which packets of a block's rows are repeated.
type again struct {
	*block
	idle, once        bool
	packets, repeated *vector // nil: no packet is
}

func (m *again) read() (err error) {
	if m.idle || m.segment.groups[m.number].Repeated.Packets == 0 {
		return nil
	}
	if m.packets, err = m.whole(columnNamed("packets")); err != nil {
		return err
	}
	m.repeated, err = m.whole(&columns[indexRepeated])
	return err
}

func (m *again) any() bool { return m.repeated != nil }

// times is how many packets of a row were seen before.
func (m *again) times(row int) uint64 {
	if m.repeated == nil {
		return 0
	}
	return min(m.repeated.at(row), m.packets.at(row))
}

// all reports whether all packets of a row were seen before.
func (m *again) all(row int) bool {
	n := m.times(row)
	return n > 0 && n >= m.packets.at(row)
}

// counting is what of a counter of a row counts.
func (m *again) counting(n uint64, row int) uint64 {
	if times := m.times(row); times > 0 && m.once {
		n -= flow.Portion(n, times, m.packets.at(row))
	}
	return n
}

// total adds the sums of all rows that are asked for: those of the whole block are known.
func (r *run) total(b *block, at []int32, m *again) error {
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
	for _, f := range r.plan.Summed() {
		v, err := b.counter(f)
		if err != nil {
			return err
		}
		total, repeated := f.Counter(&r.sums.Total), f.Counter(&r.sums.Repeated)
		for _, row := range at {
			n, back := v.at(int(row)), uint64(0)
			if times := m.times(int(row)); times > 0 {
				back = flow.Portion(n, times, m.packets.at(int(row)))
			}
			*total += n - back
			*repeated += back
		}
	}
	r.sums.Records += uint64(len(at))
	for _, row := range at {
		if m.any() && m.once && m.all(int(row)) {
			r.sums.Records--
		}
	}
	return nil
}
