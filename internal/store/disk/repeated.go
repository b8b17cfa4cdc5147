package disk

import (
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// again is which packets of a block's rows are repeated.
type again struct {
	*block
	idle, once, apart bool    // apart: rows have packets that count at another host
	packets, repeated *vector // nil: no packet is
	away              []byte  // by row: 1 where all packets count at another host; nil: none does
}

// againOf reads what a plan needs for some rows.
func (r *run) againOf(b *block, at []int32) (*again, error) {
	g := r.grouping
	m := &again{block: b, idle: g.Idle(), once: g.Once(), apart: g.HostsApart()}
	if err := m.read(); err != nil || g.Away() == nil {
		return m, err
	}
	return m, m.elsewhere(at, g.Away())
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

// elsewhere finds the rows whose packets count at another host.
func (m *again) elsewhere(at []int32, away *query.Away) error {
	of, err := m.flows()
	if err != nil {
		return err
	}
	if m.packets, err = m.whole(columnNamed("packets")); err != nil {
		return err
	}
	m.away = m.memory.marks(m.rows)
	var flows [query.SightingsAtOnce]query.Digest
	var marks [query.SightingsAtOnce]byte
	for len(at) > 0 {
		rows := at[:min(len(at), len(flows))]
		at = at[len(rows):]
		for i, row := range rows {
			flows[i], _ = of.of(row)
		}
		away.Mark(flows[:len(rows)], marks[:])
		for i, row := range rows {
			m.away[row] = marks[i]
		}
	}
	return nil
}

func (m *again) any() bool { return m.repeated != nil || m.away != nil }

// times is how many packets of a row were seen before, as rows have it.
func (m *again) times(row int) uint64 {
	switch {
	case m.away != nil && !m.apart && m.away[row] != 0:
		return m.packets.at(row)
	case m.repeated == nil:
		return 0
	}
	return min(m.repeated.at(row), m.packets.at(row))
}

// uncounted is how many packets of a row do not count in totals.
func (m *again) uncounted(row int) uint64 {
	if m.away != nil && m.away[row] != 0 {
		return m.packets.at(row)
	}
	return m.times(row)
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
	if known := &b.segment.groups[b.number]; len(at) == b.rows && m.away == nil {
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
			if times := m.uncounted(int(row)); times > 0 {
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
