package flow

import (
	"net/netip"
	"sync"
	"time"
	"unsafe"
)

// TableConfig bounds the table and sets when flows leave it.
type TableConfig struct {
	MaxFlows      int           // flows kept until their timeout
	ActiveTimeout time.Duration // a flow that goes on is exported after this; 0: every interval
	IdleTimeout   time.Duration // a flow without packets is exported after this

	IfIndex func(Iface) uint32 // index of an interface; nil: that in Iface
}

// TableOutput receives what leaves the table. Records are valid during the call
// only. All but Piece are called with the table locked and must not block;
// Piece is called without it, after Expired got at most a few thousand records,
// and may wait until these are on their way.
type TableOutput struct {
	Interval func(*Record) // what a flow had in one interval; nil: not wanted
	Ended    func()        // the interval has no more records; nil: nothing to do
	Expired  func(*Record) // a flow that expired, both halves of a conversation in turn
	Piece    func()        // nil: nothing to do
}

// Table keeps flows from one drain to the next until they expire, as an
// exporting process does (RFC 7011 5.1.1). Input: the deltas of a probe. Output:
// at the end of each interval what was counted in it, per flow, and the flows
// that expired; when the table is full, the oldest flows at once
// (flowEndReason 5). Totals of both are exact.
type Table struct {
	cfg  TableConfig
	name func(Iface) (name, netns string)
	out  TableOutput

	mu       sync.Mutex
	waiting  waiting
	leaving  leaving
	index    index
	entries  chunks[entry]
	free     []int32
	hand     int32         // entry that is looked at next for the oldest flow
	interval chunks[delta] // what this interval brought, at most one per entry
	holes    []int32       // of flows that were shed, in interval
	number   uint32        // of this interval, from 1
	lost     map[lostKey]*Counts
	began    beginnings
	recall   recall
	scratch  Record // being emitted
	counts   Counts // of it
	other    Counts // of its other half
	named    named
	stats    TableStats
}

// entry is a flow since it was last exported.
type entry struct {
	key     Key
	tag     uint32 // of the key, in the index
	pending kept
	latest  uint32 // number of the interval that had packets of it last
	current int32  // in Table.interval, where that is the present one
	reverse int32  // entry of the other half, −1: none
	used    bool
	ended   bool // a FIN or RST was seen

	verdict  verdict
	judged   bool
	recalled bool // the verdict is that of an entry that left
}

// named is the interface asked for last, which is mostly the next one, too.
type named struct {
	iface       Iface
	index       uint32
	name, netns string
}

// FlowBytes is what a flow takes of memory at most: its entry, what the running interval
// brought, what few flows have of both, two places of the index and its number in two lists.
const FlowBytes = uint64(unsafe.Sizeof(entry{}) + unsafe.Sizeof(delta{}) + 2*unsafe.Sizeof(rare{}) + 2*unsafe.Sizeof(place{}) + 2*unsafe.Sizeof(int32(0)) + unsafe.Sizeof(recalled{})/4)

// delta is what one interval adds to an entry.
type delta struct {
	entry  int32 // −1: a hole
	counts kept
}

// TableStats counts since New.
type TableStats struct {
	Live    uint64 // flows kept now
	Deltas  uint64 // merged
	Records uint64 // expired
	Shed    uint64 // flows exported early, because the table was full
}

// NewTable returns an empty table. name returns the name of an interface and of
// its network namespace.
func NewTable(cfg TableConfig, name func(Iface) (name, netns string), out TableOutput) *Table {
	cfg.MaxFlows = max(cfg.MaxFlows, 1)
	t := &Table{cfg: cfg, name: name, out: out, lost: map[lostKey]*Counts{}, began: newBeginnings(), recall: newRecall(cfg.MaxFlows), number: 1}
	t.index = newIndex(func(entry int32) *Key { return &t.entries.at(entry).key })
	return t
}

// SetTimeouts changes how long flows are kept, from the next EndInterval on.
func (t *Table) SetTimeouts(active, idle time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cfg.ActiveTimeout, t.cfg.IdleTimeout = active, idle
}

// Merge adds a delta. It may be called from several goroutines. When the table is
// full, flows that are shed go to Expired.
func (t *Table) Merge(d *Delta) {
	if t.mergeLocked(d) && t.out.Piece != nil {
		t.out.Piece()
	}
}

// mergeLocked reports whether flows were shed.
func (t *Table) mergeLocked(d *Delta) (shed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.stats.Shed
	t.stats.Deltas++
	if d.Unattributed {
		t.addLost(d)
	} else if d.reported() { // does not wait: the caller's memory
		t.mergeWaiting()
		t.merge(d, t.index.tag(&d.Key))
	} else if t.waiting.add(d, t.index.tag(&d.Key)) {
		t.mergeWaiting()
	}
	return t.stats.Shed != before
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
	if d.Packets > 0 {
		t.began.note(d.Iface, d.First)
	}
	i := t.index.find(tag, &d.Key)
	if i < 0 {
		if t.index.used >= t.cfg.MaxFlows {
			t.shed()
		}
		i = t.insert(d.Key, tag)
	}
	e := t.entries.at(i)
	if t.isQuiet(e) {
		e.latest = t.number
		e.current = t.addDelta(&delta{entry: i})
		c := d.Counts
		c.ownReported()
		t.interval.at(e.current).counts.set(&c)
	} else {
		t.interval.at(e.current).counts.add(&d.Counts)
	}
	e.ended = e.ended || d.Proto == protoTCP && d.TCPFlags&(tcpFIN|tcpRST) != 0
}

// addDelta fills a hole first: the list holds no more deltas than there are flows.
func (t *Table) addDelta(d *delta) int32 {
	if n := len(t.holes); n > 0 {
		i := t.holes[n-1]
		t.holes = t.holes[:n-1]
		*t.interval.at(i) = *d
		return i
	}
	return t.interval.add(d)
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
		e, half := t.entries.at(i), t.entries.at(j)
		e.verdict, e.judged, e.recalled = half.verdict.opposite(), half.recalled, half.recalled
	} else {
		t.remember(t.entries.at(i))
	}
	t.index.insert(tag, i)
	return i
}

// remove removes an entry. The index has it until removeLeaving().
func (t *Table) remove(i int32) {
	e := t.entries.at(i)
	t.keep(e)
	full := t.leaving.add(e.tag, i)
	if e.reverse >= 0 {
		t.entries.at(e.reverse).reverse = -1
	}
	e.used = false
	e.pending.forget()
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

// lostKey is what is known of packets whose flow could not be kept.
type lostKey struct {
	Key
	drop Drop // zero: they went on
}

// addLost adds to the sum of an interface, direction and protocol, and of the rule that dropped the packets.
func (t *Table) addLost(d *Delta) {
	k := lostKey{Key: Key{Iface: d.Iface, Direction: d.Direction, Proto: d.Proto, IPv6: d.IPv6, Tunnel: d.Tunnel}}
	if d.Drop != nil {
		k.drop = *d.Drop
	}
	counts := d.Counts
	// Of a mixture of flows these would say nothing.
	counts.FlowLabel, counts.VNI, counts.Other, counts.RTT = 0, 0, 0, RTT{}
	counts.forgetReported()
	if sum := t.lost[k]; sum != nil {
		sum.Add(&counts)
		return
	}
	t.lost[k] = &counts
}

// Stats returns the counters.
func (t *Table) Stats() TableStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mergeWaiting()
	s := t.stats
	s.Live = uint64(t.index.used)
	return s
}

func (t *Table) record(r *Record, k *Key, c *Counts) {
	if k.Iface != t.named.iface || t.named.name == "" {
		t.named.iface = k.Iface
		t.named.name, t.named.netns = t.name(k.Iface)
		t.named.index = t.ifIndex(k.Iface)
	}
	// One by one: a literal would be made elsewhere and copied.
	r.Iface, r.Netns, r.IfIndex, r.Direction = t.named.name, t.named.netns, t.named.index, k.Direction
	r.Family, r.Src, r.Dst, r.Proto = k.family(), k.addr(&k.Src), k.addr(&k.Dst), k.Proto
	r.SrcPort, r.DstPort, r.VLAN, r.InnerVLAN = k.SrcPort, k.DstPort, k.VLAN, k.InnerVLAN
	r.Tunnel, r.VNI = k.Tunnel, c.VNI
	r.TOS, r.TCPFlags, r.FlowLabel, r.TTLMin, r.TTLMax = c.TOS, c.TCPFlags, c.FlowLabel, c.TTLMin, c.TTLMax
	r.Counters, r.Other, r.OtherIfIndex = c.Counters, "", 0
	if c.Other != 0 {
		r.Other, _ = t.name(c.Other)
		r.OtherIfIndex = t.ifIndex(c.Other)
	}
	r.First, r.Last = time.Unix(0, c.First).UTC(), time.Unix(0, c.Last).UTC()
	r.EndReason, r.Unattributed = EndReasonNone, false
	r.Initiator, r.InitiatorBy = InitiatorUnknown, EvidenceNone
	r.RTT, r.Drop, r.PDM, r.IOAM = c.RTT, c.Drop, c.PDM, c.IOAM
}

func (t *Table) ifIndex(i Iface) uint32 {
	if t.cfg.IfIndex != nil {
		return t.cfg.IfIndex(i)
	}
	return i.IfIndex()
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
