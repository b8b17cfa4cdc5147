package flow

import (
	"net/netip"
	"sync"
	"time"
)

// TableConfig bounds the table and sets when flows leave it.
type TableConfig struct {
	MaxFlows      int           // flows kept until their timeout
	ActiveTimeout time.Duration // a flow that goes on is exported after this; 0: every interval
	IdleTimeout   time.Duration // a flow without packets is exported after this
}

// Table keeps flows from one drain to the next until they expire, as an
// exporting process does (RFC 7011 5.1.1). In go the deltas of a probe; at the
// end of each interval come out what was counted in it, per flow, and the flows
// that expired. Totals of both are exact.
type Table struct {
	cfg  TableConfig
	name func(Iface) (name, netns string)

	mu       sync.Mutex
	waiting  waiting
	leaving  leaving
	index    index
	entries  chunks[entry]
	free     []int32
	interval chunks[delta] // what this interval brought, one per entry
	number   uint32        // of this interval, from 1
	lost     map[Key]*Counts
	scratch  Record // being emitted
	named    named
	stats    TableStats
}

// entry is a flow since it was last exported.
type entry struct {
	key     Key
	tag     uint32 // of the key, in the index
	pending Counts
	latest  uint32 // number of the interval that had packets of it last
	current int32  // in Table.interval, where that is the present one
	reverse int32  // entry of the other half, −1: none
	used    bool
	ended   bool // a FIN or RST was seen
}

// named is the interface asked for last, which is mostly the next one, too.
type named struct {
	iface       Iface
	name, netns string
}

// delta is what one interval adds to an entry.
type delta struct {
	entry  int32
	counts Counts
}

// TableStats counts since New.
type TableStats struct {
	Live         uint64 // flows kept now
	Deltas       uint64 // merged
	Records      uint64 // expired
	Unattributed uint64 // packets of flows the table had no room for
}

// NewTable returns an empty table. name tells the name of an interface and of
// its network namespace.
func NewTable(cfg TableConfig, name func(Iface) (name, netns string)) *Table {
	t := &Table{cfg: cfg, name: name, lost: map[Key]*Counts{}, number: 1}
	t.index = newIndex(func(entry int32) *Key { return &t.entries.at(entry).key })
	return t
}

// Merge adds a delta. It may be called from several goroutines.
func (t *Table) Merge(d *Delta) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Deltas++
	if d.Unattributed {
		t.lose(d)
		return
	}
	if d.PDM != nil { // does not wait: the caller's memory
		t.mergeWaiting()
		t.merge(d, t.index.tag(&d.Key))
		return
	}
	if t.waiting.add(d, t.index.tag(&d.Key)) {
		t.mergeWaiting()
	}
}

// mergeWaiting merges what waits. Its places in the index are asked for before
// the first is needed.
func (t *Table) mergeWaiting() {
	w := &t.waiting
	for i := range w.n {
		w.touched += t.index.places[t.index.home(w.tags[i])].tag
	}
	for i := range w.n {
		t.merge(&w.deltas[i], w.tags[i])
	}
	w.n = 0
}

func (t *Table) merge(d *Delta, tag uint32) {
	i := t.index.find(tag, &d.Key)
	if i < 0 {
		// Within an interval the table may outgrow its bound, but not by more
		// than it holds: what comes beyond is counted without addresses.
		if t.index.used >= 2*t.cfg.MaxFlows {
			t.stats.Unattributed += d.Packets
			t.lose(d)
			return
		}
		i = t.insert(d.Key, tag)
	}
	e := t.entries.at(i)
	if t.isQuiet(e) {
		e.latest = t.number
		e.current = t.interval.add(&delta{entry: i, counts: d.Counts})
		if d.PDM != nil { // the caller's memory
			t.interval.at(e.current).counts.PDM = d.PDM.Clone()
		}
	} else {
		t.interval.at(e.current).counts.Add(&d.Counts)
	}
	e.ended = e.ended || d.Proto == protoTCP && d.TCPFlags&(tcpFIN|tcpRST) != 0
}

const (
	tcpFIN = 0x01
	tcpSYN = 0x02
	tcpRST = 0x04
	tcpACK = 0x10
)

func (t *Table) insert(k Key, tag uint32) int32 {
	var i int32
	fresh := entry{key: k, tag: tag, reverse: -1, used: true}
	if n := len(t.free); n > 0 {
		i = t.free[n-1]
		t.free = t.free[:n-1]
		*t.entries.at(i) = fresh
	} else {
		i = t.entries.add(&fresh)
	}
	// Once here, instead of at each export.
	back := k.Reverse()
	if j := t.index.find(t.index.reverse(tag, &k, &back), &back); j >= 0 {
		t.entries.at(i).reverse, t.entries.at(j).reverse = j, i
	}
	t.index.insert(tag, i)
	return i
}

// remove takes out an entry. The index has it until removeLeaving().
func (t *Table) remove(i int32) {
	e := t.entries.at(i)
	full := t.leaving.add(e.tag, i)
	if e.reverse >= 0 {
		t.entries.at(e.reverse).reverse = -1
	}
	e.used, e.pending.PDM = false, nil
	t.free = append(t.free, i)
	if full {
		t.removeLeaving()
	}
}

// removeLeaving takes entries out of the index, as mergeWaiting() puts them in.
func (t *Table) removeLeaving() {
	l := &t.leaving
	for i := range l.n {
		l.touched += t.index.places[t.index.home(l.places[i].tag)].tag
	}
	for _, p := range l.places[:l.n] {
		t.index.remove(p.tag, p.entry)
	}
	l.n = 0
}

// lose adds to the sum of an interface, direction and protocol.
func (t *Table) lose(d *Delta) {
	k := Key{Iface: d.Iface, Direction: d.Direction, Proto: d.Proto, IPv6: d.IPv6, Tunnel: d.Tunnel}
	counts := d.Counts
	// Of a mixture of flows these would say nothing.
	counts.FlowLabel, counts.VNI, counts.RTT, counts.PDM = 0, 0, RTT{}, nil
	if sum := t.lost[k]; sum != nil {
		sum.Add(&counts)
		return
	}
	t.lost[k] = &counts
}

// EndInterval closes the interval. interval, unless nil, gets a record for every
// flow that had packets in it; expired gets the flows that leave, both halves of
// a conversation one after the other. Records are valid during the call only.
func (t *Table) EndInterval(now time.Time, interval, expired func(*Record)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mergeWaiting()
	t.endInterval(interval)
	for i := range t.entries.len {
		e := t.entries.at(i)
		if !e.used {
			continue
		}
		if reason := t.expiry(e, now); reason != EndReasonNone {
			t.export(i, reason, expired)
		}
	}
	t.removeLeaving()
	t.shrink(expired)
	t.nextInterval()
	t.stats.Live = uint64(t.index.used)
}

func (t *Table) nextInterval() {
	t.interval.reset()
	t.number++
}

// isQuiet says that this interval had no packets of a flow.
func (t *Table) isQuiet(e *entry) bool { return e.latest != t.number }

// Flush exports everything, when the agent ends.
func (t *Table) Flush(interval, expired func(*Record)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mergeWaiting()
	t.endInterval(interval)
	for i := range t.entries.len {
		if t.entries.at(i).used {
			t.export(i, EndReasonForcedEnd, expired)
		}
	}
	t.removeLeaving()
	t.exportLost(expired)
	t.nextInterval()
	t.stats.Live = 0
}

// endInterval moves what the interval brought to the flows and tells it.
func (t *Table) endInterval(interval func(*Record)) {
	t.named = named{} // it may have another name by now
	var r Record
	for i := range t.interval.len {
		d := t.interval.at(i)
		e := t.entries.at(d.entry)
		if interval != nil {
			t.record(&r, &e.key, &d.counts)
			interval(&r)
		}
		e.pending.Add(&d.counts)
	}
	if interval == nil {
		return
	}
	for k, counts := range t.lost { // exported with the expired flows
		t.recordLost(&r, &k, counts)
		interval(&r)
	}
}

// expiry says whether and why a flow leaves now.
func (t *Table) expiry(e *entry, now time.Time) EndReason {
	switch {
	case e.ended && t.isQuiet(e): // the last ACKs have come
		return EndReasonEndOfFlow
	case t.isQuiet(e) && isOver(e.pending.Last, t.cfg.IdleTimeout, now):
		return EndReasonIdleTimeout
	case e.pending.Packets > 0 && isOver(e.pending.First, t.cfg.ActiveTimeout, now):
		return EndReasonActiveTimeout
	}
	return EndReasonNone
}

// isOver tells whether a time has passed since a packet. One that is yet to come
// was before the clock was set back: nobody knows how long ago.
func isOver(since int64, timeout time.Duration, now time.Time) bool {
	age := now.UnixNano() - since
	return age < 0 || age >= int64(timeout)
}

// export emits a flow and, right behind it, its reverse. Flows that go on stay
// in the table with their counters at zero.
func (t *Table) export(i int32, reason EndReason, expired func(*Record)) {
	t.emit(i, reason, expired)
	stays := reason == EndReasonActiveTimeout
	if stays {
		t.entries.at(i).restart()
	}
	if j := t.entries.at(i).reverse; j >= 0 {
		e := t.entries.at(j)
		switch {
		case stays && e.pending.Packets > 0:
			t.emit(j, reason, expired)
			e.restart()
		case !stays && t.isQuiet(e), reason == EndReasonForcedEnd:
			t.emit(j, reason, expired)
			t.remove(j)
		}
	}
	if !stays {
		t.remove(i)
	}
}

// restart forgets what was exported.
func (e *entry) restart() { e.pending = Counts{Last: e.pending.Last} }

func (t *Table) emit(i int32, reason EndReason, expired func(*Record)) {
	e := t.entries.at(i)
	if e.pending.Packets == 0 && e.pending.PDM == nil {
		return
	}
	r := &t.scratch
	t.record(r, &e.key, &e.pending)
	r.EndReason = reason
	t.stats.Records++
	expired(r)
}

// shrink brings the table back to its bound, the flows without packets in this
// interval first, and exports the sums of what had no room.
func (t *Table) shrink(expired func(*Record)) {
	for _, quiet := range []bool{true, false} {
		for i := int32(0); i < t.entries.len && t.index.used > t.cfg.MaxFlows; i++ {
			if e := t.entries.at(i); e.used && t.isQuiet(e) == quiet {
				t.export(i, EndReasonLackOfResources, expired)
				t.removeLeaving() // the bound is that of the index
			}
		}
	}
	t.exportLost(expired)
}

func (t *Table) exportLost(expired func(*Record)) {
	var r Record
	for k, counts := range t.lost {
		t.recordLost(&r, &k, counts)
		r.EndReason = EndReasonLackOfResources
		t.stats.Records++
		expired(&r)
		delete(t.lost, k)
	}
}

// Stats returns the counters.
func (t *Table) Stats() TableStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mergeWaiting()
	return t.stats
}

func (t *Table) record(r *Record, k *Key, c *Counts) {
	if k.Iface != t.named.iface || t.named.name == "" {
		t.named.iface = k.Iface
		t.named.name, t.named.netns = t.name(k.Iface)
	}
	// One by one: a literal would be made elsewhere and copied.
	r.Iface, r.Netns, r.IfIndex, r.Direction = t.named.name, t.named.netns, k.Iface.IfIndex(), k.Direction
	r.Family, r.Src, r.Dst, r.Proto = k.family(), k.addr(&k.Src), k.addr(&k.Dst), k.Proto
	r.SrcPort, r.DstPort, r.VLAN, r.InnerVLAN = k.SrcPort, k.DstPort, k.VLAN, k.InnerVLAN
	r.Tunnel, r.VNI = k.Tunnel, c.VNI
	r.TOS, r.TCPFlags, r.FlowLabel, r.TTLMin, r.TTLMax = c.TOS, c.TCPFlags, c.FlowLabel, c.TTLMin, c.TTLMax
	r.Packets, r.Bytes, r.PayloadBytes, r.WireBytes = c.Packets, c.Bytes, c.PayloadBytes, c.WireBytes
	r.Fragments, r.CEPackets = c.Fragments, c.CEPackets
	r.First, r.Last = time.Unix(0, c.First).UTC(), time.Unix(0, c.Last).UTC()
	r.EndReason, r.Unattributed = EndReasonNone, false
	r.RTT, r.PDM = c.RTT, c.PDM
}

func (t *Table) recordLost(r *Record, k *Key, c *Counts) {
	t.record(r, k, c)
	r.Src, r.Dst = netip.Addr{}, netip.Addr{}
	r.Unattributed = true
}

func (k *Key) family() uint8 {
	if k.IPv6 {
		return 6
	}
	return 4
}

func (k *Key) addr(a *[16]byte) netip.Addr {
	if k.IPv6 {
		return netip.AddrFrom16(*a)
	}
	return netip.AddrFrom4([4]byte(a[12:]))
}
