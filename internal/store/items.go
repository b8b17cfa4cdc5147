package store

import (
	"cmp"
	"iter"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// groups merges the records of a window. Rows are large, and a flood brings one for each
// record: so records are sorted by their keys first, and each row is merged from its records,
// and given away, before the next.
type groups struct {
	*query.Grouping
	plan   *query.Plan
	seen   *sightings
	window *window
	items  []item
}

// item is a record, or a part of one, with what tells its row.
type item struct {
	digest    query.Digest
	repeated  uint64 // packets of the record that were seen before
	row       int32  // of the window
	in, out   int32  // places where it came in and left; −1: this host
	firstIn   int32  // where those came in that were seen there first
	part      query.Part
	processed bool // where it came in and left is known
}

// group is the groups of a window; before is the interval in front of it, nil: not known.
func group(p *query.Plan, before *interval, w *window, sc *scratch) *groups {
	g := &groups{Grouping: query.NewGrouping(p), plan: p, window: w, items: query.Empty(&sc.items, w.len())}
	g.seen = newSightings(sc, g.Apart(), g.Idle())
	// What was stored holds for all records, and where namespaces are not distinguished.
	stored := !g.Apart() && !g.Idle() && !p.Records().TestsPlaces()
	n := 0
	for i, iv := range w.intervals {
		var repeated []uint64
		if stored && w.repeated != nil {
			repeated = w.repeated[i]
		}
		n = g.collect(before, iv, n, repeated)
		before = iv
	}
	sc.items = g.items
	slices.SortFunc(g.items, func(a, b item) int {
		return cmp.Or(a.digest.Compare(b.digest), cmp.Compare(a.row, b.row), cmp.Compare(a.part, b.part))
	})
	return g
}

// collect adds the records of an interval that are matched; the number of its first row is n.
// repeated is what was stored of each; nil: nothing was.
func (g *groups) collect(before, iv *interval, n int, repeated []uint64) int {
	filter := g.plan.Records()
	step := g.plan.Bucket(iv.from)
	var r flow.Record
	var memory reports
	add := func(it item) {
		iv.rows.at(int(it.row)-n).record(iv, &r, &memory)
		s := g.where(&it)
		g.Take(&r, &s)
		var meant bool
		if it.digest, meant = g.Digest(&r, &s, step); meant {
			g.items = append(g.items, it)
		}
	}
	g.seen.resolveInterval(before, iv, filter, func(i int, x *sighting) {
		it := item{row: int32(n + i)}
		if x == nil {
			if repeated != nil && repeated[i] > 0 { // a sum of records that were joined
				it.processed, it.in, it.out, it.firstIn, it.repeated = true, -1, -1, -1, repeated[i]
			}
			add(it)
			return
		}
		packets := iv.rows.at(i).Packets
		it.processed, it.in, it.out, it.firstIn = true, x.in, x.out, g.seen.firstIn(x)
		if it.repeated = x.take(packets); repeated != nil {
			it.repeated = min(repeated[i], packets)
		}
		if g.Passage() && it.repeated < packets && it.firstIn != x.in {
			if it.repeated > 0 {
				it.part = query.RepeatedPart
				add(it)
			}
			it.part = query.FreshPart
		}
		add(it)
	})
	return n + iv.rows.len()
}

// where is what an item knows of the way of its packets.
func (g *groups) where(it *item) query.Seen {
	if !it.processed {
		return query.Seen{}
	}
	return query.Seen{
		In: g.seen.name(it.in), Out: g.seen.name(it.out), First: g.seen.name(it.firstIn), Repeated: it.repeated, Part: it.part,
	}
}

// count is how many rows the items make.
func (g *groups) count() (n int) {
	for i := range g.items {
		if i == 0 || g.items[i].digest != g.items[i-1].digest {
			n++
		}
	}
	return n
}

// rows are the rows in the order of their digests.
func (g *groups) rows() iter.Seq[*query.Row] {
	return func(yield func(*query.Row) bool) {
		var row query.Row
		var r flow.Record
		var memory reports
		for i := range g.items {
			it := &g.items[i]
			iv, n := g.window.find(it.row)
			iv.rows.at(n).record(iv, &r, &memory)
			s := g.where(it)
			turned := g.Take(&r, &s)
			if i == 0 || it.digest != g.items[i-1].digest {
				g.Begin(&row, &r, &s, g.plan.Bucket(iv.from))
				row.Digest = it.digest
			}
			g.Add(&row, &r, &s, turned)
			if (i == len(g.items)-1 || it.digest != g.items[i+1].digest) && !yield(&row) {
				return
			}
		}
	}
}

// report is what the groups of a window are made of.
func (w *window) report() (r query.Report) {
	for _, iv := range w.intervals { // the clock may have stepped back
		if r.From.IsZero() || iv.from.Before(r.From) {
			r.From = iv.from
		}
		if iv.to.After(r.To) {
			r.To = iv.to
		}
		r.Intervals++
		r.Summed += iv.summed
	}
	return r
}

// run answers from the given intervals. In the one before them, packets may have
// been seen whose last sighting is in these: an interval ends between two.
func run(p *query.Plan, before *interval, intervals []*interval, sc *scratch) query.Groups {
	return runWindow(p, before, newWindow(intervals), sc)
}

func runWindow(p *query.Plan, before *interval, w *window, sc *scratch) query.Groups {
	g := group(p, before, w, sc)
	return query.Groups{Report: w.report(), Rows: g.rows(), Count: g.count()}
}
