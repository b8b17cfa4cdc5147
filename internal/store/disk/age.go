package disk

import (
	"context"
	"net/netip"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// keptShare is how many of a file's rows stay when it is aged: one in so many.
const keptShare = 16

// flowKey is a flow, wherever it was seen: its rows stay or go together, so that packets that
// pass several interfaces still count once.
type flowKey struct {
	src, dst     netip.Addr
	sport, dport uint16
	proto        uint8
}

func flowKeyOf(r *flow.Record) flowKey {
	return flowKey{r.Src, r.Dst, r.SrcPort, r.DstPort, r.Proto}
}

// age makes a file with one interval for all of its time: the heaviest flows, each as one row,
// and sums of the others by interface, direction, IP version and protocol. All counters stay
// exact.
func (s *Store) age(seg *segment) error {
	heavy, err := heaviest(seg, max(seg.rows/keptShare, 64))
	if err != nil {
		s.damaged(seg, err)
		return err
	}
	kept, summed, err := split(seg, heavy)
	if err != nil {
		s.damaged(seg, err)
		return err
	}
	head := store.Head{Sequence: seg.last, From: seg.began(), To: seg.ended(), Summed: summed, Wiring: seg.heads[len(seg.heads)-1].Wiring}
	for _, h := range seg.heads {
		head.Summed += h.Summed
	}
	b := store.NewBuilder(head)
	for i := range kept {
		addAged(b, &kept[i])
	}
	e := b.End()
	with := map[string]bool{}
	e.Objects(with)
	path := segmentName(s.cfg.Path, seg.first, seg.last, true)
	w, err := newWriter(path, s.deps.Origin, with)
	if err != nil {
		return err
	}
	if err := w.add(&e); err != nil {
		w.abort()
		return err
	}
	if err := w.end(seg.first); err != nil {
		return err
	}
	aged, err := s.added(path)
	if err != nil {
		return err
	}
	s.replace(seg, aged)
	return nil
}

// addAged adds a row as a record; as two where only some of its packets were seen before, so that
// the counters of both parts stay exact.
func addAged(b *store.Builder, w *query.Row) {
	r, again := w.Record, w.Again()
	if again.Packets == r.Packets {
		b.Add(&r, again.Packets)
		return
	}
	if again.Packets > 0 {
		part := r
		part.Counters, part.PDM, part.IOAM, part.RTT = again, nil, nil, flow.RTT{}
		b.Add(&part, again.Packets)
		r.Subtract(&again)
	}
	b.Add(&r, 0)
}

// heaviest are the flows with the most bytes.
func heaviest(seg *segment, most int) (map[flowKey]bool, error) {
	sums := map[flowKey]uint64{}
	err := eachRecord(seg, []string{"bytes"}, func(r *flow.Record, _ uint64) {
		if !r.Unattributed {
			sums[flowKeyOf(r)] += r.Bytes
		}
	})
	if err != nil {
		return nil, err
	}
	heavy := make(map[flowKey]bool, min(most, len(sums)))
	if len(sums) > most {
		sizes := make([]uint64, 0, len(sums))
		for _, n := range sums {
			sizes = append(sizes, n)
		}
		slices.Sort(sizes)
		least := sizes[len(sizes)-most]
		for key, n := range sums {
			if n < least {
				delete(sums, key)
			}
		}
	}
	for key := range sums {
		heavy[key] = true
	}
	return heavy, nil
}

// split merges the records of heavy flows, and sums the others; summed is how many these are.
func split(seg *segment, heavy map[flowKey]bool) (rows []query.Row, summed uint64, err error) {
	p := query.Plan{}
	if err := p.Check(); err != nil {
		return nil, 0, err
	}
	p.Budget.Rows = seg.rows + 1
	g := query.NewGrouping(&p)
	acc := query.NewAccumulator(&p, g)
	err = eachRecord(seg, nil, func(r *flow.Record, repeated uint64) {
		if !r.Unattributed && !heavy[flowKeyOf(r)] {
			summed++
			sumOf(r)
		}
		s := query.Seen{Repeated: repeated}
		acc.Record(r, &s, g.Take(r, &s), p.Bucket(seg.began()))
	})
	if err != nil {
		return nil, 0, err
	}
	for w := range acc.Groups(query.Report{}).Rows {
		w.Finish()
		rows = append(rows, *w)
	}
	return rows, summed, nil
}

// sumOf leaves of a record what is still known of it in a sum: of a mixture of flows, delays
// would say nothing.
func sumOf(r *flow.Record) {
	*r = flow.Record{
		Iface: r.Iface, Netns: r.Netns, IfIndex: r.IfIndex, Direction: r.Direction, Family: r.Family, Proto: r.Proto,
		TCPFlags: r.TCPFlags, TTLMin: r.TTLMin, TTLMax: r.TTLMax, First: r.First, Last: r.Last, Counters: r.Counters, Drop: r.Drop, Unattributed: true,
	}
}

// eachRecord calls f with all records of a file; with names, only these fields and those that
// make a flow are read.
func eachRecord(seg *segment, names []string, f func(r *flow.Record, repeated uint64)) error {
	file, checked, err := openParquet(seg.path)
	if err != nil {
		return err
	}
	defer checked.Close()
	var m memory
	for i := range seg.groups {
		if err := newBlock(file, seg, i, &m).records(context.Background(), nil, named(names), func(_ int, r *flow.Record, repeated uint64) { f(r, repeated) }); err != nil {
			return err
		}
	}
	return nil
}
