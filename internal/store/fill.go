package store

import (
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// Interval takes the records of one scan interval. It is for one goroutine and
// cannot be seen until End.
type Interval struct {
	store    *Store
	iv       *interval
	reserved int // rows that were reserved, those in use included
	index    map[link]uint32
	drops    map[flow.Drop]uint32 // numbers in iv.drops, from 1
	last     link                 // of the record before, and its number
	lastN    uint32

	// Once full: the rows as a heap, the smallest on top, and sums of what had to go.
	heap []heapItem
	sums map[sumKey]*row
}

// sumKey is what is still known of records that are not kept.
type sumKey struct {
	link      uint32
	direction flow.Direction
	proto     uint8
	family    uint8
	drop      uint32
}

// Begin starts the interval after the one that ended at from.
func (s *Store) Begin(from time.Time) *Interval {
	s.mu.Lock()
	if s.began.IsZero() {
		s.began = from
	}
	s.mu.Unlock()
	return &Interval{store: s, iv: &interval{from: from}, index: map[link]uint32{}}
}

// Add takes one record; r is not kept.
func (i *Interval) Add(r *flow.Record) {
	if !r.Unattributed && i.hasSpace() {
		i.keep(r)
		return
	}
	var w row
	i.set(&w, r)
	if w.unattributed {
		i.sum(&w)
		return
	}
	i.replaceSmallest(&w, r)
}

// set has a row be that of a record, but for what options reported.
func (i *Interval) set(w *row, r *flow.Record) {
	w.set(r, i.linkNumber(link{r.Iface, r.Netns, r.IfIndex}))
	w.drop = i.dropNumber(r.Drop)
	if r.Other != "" {
		w.other = i.linkNumber(link{r.Other, r.Netns, r.OtherIfIndex}) + 1
	}
}

// keep adds a record, whatever there is space for.
func (i *Interval) keep(r *flow.Record) {
	w := i.iv.rows.add(row{})
	i.set(w, r)
	w.reported = i.iv.reported.put(r.PDM, r.IOAM)
}

func (i *Interval) hasSpace() bool {
	if i.heap == nil && i.iv.rows.len() == i.reserved {
		i.reserved += i.store.reserve(i.reserved)
	}
	return i.iv.rows.len() < i.reserved
}

// End makes the interval visible to queries and followers. A store may hold a
// few more records than its bound: the sums.
func (i *Interval) End(to time.Time) {
	i.iv.to = to
	if i.iv.summed > 0 {
		i.iv.forget()
	}
	for _, w := range i.sums {
		i.iv.rows.add(*w)
	}
	i.iv.rows.clip()
	before := i.store.add(i.iv, i.reserved)
	if i.store.onEnd != nil {
		i.store.onEnd(Ended{iv: i.iv, before: before})
	}
	i.iv = nil
}

func (i *Interval) linkNumber(l link) uint32 {
	if l == i.last && len(i.iv.links) > 0 {
		return i.lastN
	}
	n, ok := i.index[l]
	if !ok {
		n = uint32(len(i.iv.links))
		i.iv.links = append(i.iv.links, l)
		i.index[l] = n
	}
	i.last, i.lastN = l, n
	return n
}

// dropNumber is the number of a reason in the interval.
func (i *Interval) dropNumber(d *flow.Drop) uint32 {
	if d == nil {
		return 0
	}
	n, ok := i.drops[*d]
	if !ok {
		if i.drops == nil {
			i.drops = map[flow.Drop]uint32{}
		}
		i.iv.drops = append(i.iv.drops, d)
		n = uint32(len(i.iv.drops))
		i.drops[*d] = n
	}
	return n
}

// replaceSmallest keeps w if it has more bytes than the smallest row kept, and
// sums the loser.
func (i *Interval) replaceSmallest(w *row, r *flow.Record) {
	if i.heap == nil {
		i.heap = heapOf(i.iv.rows)
	}
	i.iv.summed++
	top := &i.heap[0]
	if w.Bytes <= top.bytes {
		i.sum(w)
		return
	}
	i.sum(i.iv.rows.at(int(top.index)))
	w.reported = i.iv.reported.put(r.PDM, r.IOAM)
	*i.iv.rows.at(int(top.index)) = *w
	top.bytes = w.Bytes
	siftDown(i.heap, 0)
}

// forget drops what was reported of rows that are no longer kept.
func (iv *interval) forget() {
	var kept packed
	var memory reports
	for n := range iv.rows.len() {
		w := iv.rows.at(n)
		w.reported = kept.move(iv.reported, w.reported, &memory)
	}
	iv.reported = kept
}

// sum adds w to the one unattributed row of its interface, direction, family and
// protocol. Of a mixture of flows, delays would say nothing.
func (i *Interval) sum(w *row) {
	key := sumKey{w.link, w.direction, w.proto, w.family, w.drop}
	total, ok := i.sums[key]
	if !ok {
		if i.sums == nil {
			i.sums = map[sumKey]*row{}
		}
		total = &row{
			link: w.link, direction: w.direction, proto: w.proto, family: w.family, unattributed: true, drop: w.drop,
			first: w.first, last: w.last, ttlMin: w.ttlMin,
		}
		i.sums[key] = total
	}
	total.Counters.Add(&w.Counters)
	total.tcpFlags |= w.tcpFlags
	total.first = min(total.first, w.first)
	total.last = max(total.last, w.last)
	total.ttlMin = min(total.ttlMin, w.ttlMin)
	total.ttlMax = max(total.ttlMax, w.ttlMax)
}

// heapItem is a row by its bytes. The heap is apart from the rows because these
// are large.
type heapItem struct {
	bytes uint64
	index int32
}

func heapOf(rows rows) []heapItem {
	h := make([]heapItem, rows.len())
	for i := range h {
		h[i] = heapItem{rows.at(i).Bytes, int32(i)}
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
	return h
}

// siftDown restores the order below i after h[i] grew.
func siftDown(h []heapItem, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].bytes < h[child].bytes {
			child++
		}
		if h[i].bytes <= h[child].bytes {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
