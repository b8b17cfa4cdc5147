package store

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
)

// grouping merges records. Rows are large, and a flood brings one for each record: so
// records are sorted by their keys first, and each row is merged from its records, and
// given away, before the next.
type grouping struct {
	fold      Fold
	services  bool
	picks     []pick
	endpoints bool // some key is an address or a port
	addresses bool // some key is an address
	whole     bool // rows are flows, and have all that their first record has
	once      bool // a packet counts in one row only
	passage   bool // some key is in or out

	seen       *sightings
	everywhere bool // repeated packets count like others
	key        []byte
}

// digest stands for the keys of a row: a tenth of their size, and different
// for different ones but with a probability of 2⁻¹²⁸, whoever chose them.
type digest [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func digestOf(key []byte) digest {
	return digest{maphash.Bytes(seeds[0], key), maphash.Bytes(seeds[1], key)}
}

// pick is a key with its field; nil: it is in or out.
type pick struct {
	key   Key
	field *flow.Field
}

func newGrouping(by By) *grouping {
	g := &grouping{
		fold: by.Fold, services: by.Services, whole: by.Whole(),
		// A peer is one of the host, or namespace, that its packets end at.
		once: by.Fold != FoldPeer && !by.has("iface") && !by.has("direction"),
	}
	for _, k := range by.Keys {
		field := keyDefs[defOf(k.Name)].field
		g.picks = append(g.picks, pick{k, field})
		g.passage = g.passage || field == nil
		g.endpoints = g.endpoints || field != nil && field.Endpoint
		g.addresses = g.addresses || k.address()
	}
	return g
}

// item is a record, or a part of one, with what tells its row.
type item struct {
	digest   digest
	repeated uint64 // packets of the record that were seen before
	row      int32  // of the window
	part     part
}

// part is what of a record an item means. Where only some of its packets are repeated,
// the others did not come in where those did, and are apart from them.
type part uint8

const (
	wholeRecord  part = iota
	repeatedPart      // the repeated packets
	freshPart         // the others
)

// collect returns all records of a window that are matched, in the order of their rows.
func (g *grouping) collect(w *window, sc *scratch) []item {
	matched := 0
	for _, n := range g.seen.rows {
		if n != notMatched {
			matched++
		}
	}
	items := empty(&sc.items, matched)
	var r flow.Record
	var memory reports
	add := func(it item) {
		w.record(it.row, &r, &memory)
		in, out, _, _ := g.take(&it, &r)
		g.appendKey(&r, in, out)
		it.digest = digestOf(g.key)
		items = append(items, it)
	}
	for row, n := range g.seen.rows {
		it := item{row: int32(row)}
		if n == notMatched {
			continue
		}
		if n < 0 {
			add(it)
			continue
		}
		x := &g.seen.list[n]
		packets := w.row(it.row).Packets
		it.repeated = x.take(packets)
		if g.passage && it.repeated < packets && g.seen.firstIn(x) != x.in {
			if it.repeated > 0 {
				it.part = repeatedPart
				add(it)
			}
			it.part = freshPart
		}
		add(it)
	}
	slices.SortFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.digest[0], b.digest[0]), cmp.Compare(a.digest[1], b.digest[1]),
			cmp.Compare(a.row, b.row), cmp.Compare(a.part, b.part))
	})
	return items
}

// count is how many rows sorted items make.
func (g *grouping) count(items []item) (n int) {
	for i := range items {
		if i == 0 || items[i].digest != items[i-1].digest {
			n++
		}
	}
	return n
}

// merge calls each with every row of sorted items; the row is valid until it returns.
func (g *grouping) merge(w *window, items []item, each func(*Row)) {
	var row Row
	var r flow.Record
	var memory reports
	for i := range items {
		it := &items[i]
		w.record(it.row, &r, &memory)
		in, out, repeated, turned := g.take(it, &r)
		if i == 0 || it.digest != items[i-1].digest {
			g.begin(&row, &r, in, out)
		}
		g.add(&row, &r, repeated, turned)
		if i == len(items)-1 || it.digest != items[i+1].digest {
			row.RTT = flow.RTT{Responder: row.responder.value(), Initiator: row.initiator.value()}
			each(&row)
		}
	}
}

// take makes what an item means of its record, which came in and left on two
// interfaces and has so many packets that count as repeated.
func (g *grouping) take(it *item, r *flow.Record) (in, out string, repeated uint64, turned bool) {
	if n := g.seen.rows[it.row]; n >= 0 {
		x := &g.seen.list[n]
		in, out, repeated = g.seen.name(x.in), g.seen.name(x.out), it.repeated
		switch it.part {
		case repeatedPart:
			r.RTT, r.PDM, r.IOAM = flow.RTT{}, nil, nil // once is enough
			r.Counters = r.Share(repeated)
		case freshPart:
			again := r.Share(repeated)
			r.Subtract(&again)
			in, repeated = g.seen.name(g.seen.firstIn(x)), 0
		}
		if g.everywhere {
			repeated = 0
		}
	}
	if turned = g.fold.turn(r); turned {
		in, out = out, in
	}
	if g.services {
		dropClientPort(r)
	}
	return in, out, repeated, turned
}

// add merges one record; r is changed. What it measured counts also where its packets
// are repeated.
func (g *grouping) add(w *Row, r *flow.Record, repeated uint64, turned bool) {
	if repeated > 0 {
		again := r.Share(repeated)
		w.repeated.Add(&again)
		if g.once {
			r.Subtract(&again)
		}
	}
	if r.Packets > 0 || repeated == 0 {
		w.count(r, turned)
	}
	w.measure(r)
	w.mergeIOAM(r, g.whole)
}

// appendKey writes what tells the row of a record from others. Without addresses
// and ports among the keys, what could not be attributed adds to the row it belongs
// to.
func (g *grouping) appendKey(r *flow.Record, in, out string) {
	b := g.key[:0]
	if g.endpoints {
		b = append(b, boolean(r.Unattributed))
	}
	if g.addresses {
		b = append(b, r.Family) // an address tells it anyway, and what has none keeps it
	}
	for i := range g.picks {
		switch p := &g.picks[i]; {
		case p.key.Name == "in":
			b = appendText(b, in)
		case p.field == nil:
			b = appendText(b, out)
		case r.Unattributed && p.field.Endpoint:
		case p.key.address():
			cut := p.key.cut(p.field.Addr(r))
			b = append(append(b, byte(cut.Bits())), cut.Addr().AsSlice()...)
		default:
			b = p.field.AppendKey(b, r)
		}
	}
	g.key = b
}

func appendText(b []byte, s string) []byte {
	return append(binary.NativeEndian.AppendUint32(b, uint32(len(s))), s...)
}

func boolean(b bool) (n uint8) {
	if b {
		n = 1
	}
	return n
}

// begin makes a row with its keys and no sums.
func (g *grouping) begin(w *Row, r *flow.Record, in, out string) {
	*w = Row{}
	w.Unattributed = g.endpoints && r.Unattributed
	if g.addresses {
		w.Family = r.Family
	}
	for i := range g.picks {
		switch p := &g.picks[i]; {
		case p.key.Name == "in":
			w.In = in
		case p.field == nil:
			w.Out = out
		case !r.Unattributed || !p.field.Endpoint:
			p.field.Copy(&w.Record, r)
		}
	}
	g.cut(w)
	if g.whole {
		w.IfIndex, w.TOS = r.IfIndex, r.TOS
		for _, f := range firstFields {
			f.Copy(&w.Record, r)
		}
	}
}

// firstFields are those that only a row of one flow has.
var firstFields = slices.DeleteFunc(flow.FieldsMerged(flow.MergeFirst), func(f *flow.Field) bool { return f.Copy == nil })

// cut cuts the addresses of a row as the keys say.
func (g *grouping) cut(w *Row) {
	for i := range g.picks {
		switch k := g.picks[i].key; k.Name {
		case "src":
			w.SrcPrefix = k.cut(w.Src)
			w.Src = w.SrcPrefix.Addr()
		case "dst":
			w.DstPrefix = k.cut(w.Dst)
			w.Dst = w.DstPrefix.Addr()
		}
	}
}

// count adds the packets of one record.
func (w *Row) count(r *flow.Record, turned bool) {
	w.Records++
	if w.Records == 1 {
		w.CopyMerged(r)
	} else {
		w.Record.Merge(r)
	}
	if turned {
		w.Back.Add(&r.Counters)
	}
}

// measure adds what else is known of them.
func (w *Row) measure(r *flow.Record) {
	w.mergeInitiator(r)
	if r.RTT != (flow.RTT{}) {
		w.RTTSeen++
		w.responder.add(r.RTT.Responder)
		w.initiator.add(r.RTT.Initiator)
	}
	switch {
	case r.PDM == nil:
	case w.PDM == nil:
		w.PDM = r.PDM.Clone() // the next record uses this one's memory
	default:
		w.PDM.Add(r.PDM)
	}
}

// mergeIOAM adds what IOAM options reported. A row of one flow has its latest path, others what
// all their paths agree on.
func (w *Row) mergeIOAM(r *flow.Record, whole bool) {
	if r.IOAM == nil {
		return
	}
	if w.IOAM == nil {
		w.IOAM = &flow.IOAM{}
	}
	if whole {
		w.IOAM.Add(r.IOAM)
		return
	}
	w.IOAM.AddSums(r.IOAM)
	switch path := &r.IOAM.IOAMPath; {
	case path.ID == 0:
	case w.path.ID == 0:
		w.path, w.IOAM.IOAMPath = *path, *path
	default:
		w.IOAM.Agree(&w.path, path)
	}
}

// mergeInitiator keeps what all records agree on, with the weakest evidence.
func (w *Row) mergeInitiator(r *flow.Record) {
	switch {
	case r.Initiator == flow.InitiatorUnknown || w.disputed:
	case w.Initiator == flow.InitiatorUnknown:
		w.Initiator, w.InitiatorBy = r.Initiator, r.InitiatorBy
	case w.Initiator != r.Initiator:
		w.Initiator, w.InitiatorBy, w.disputed = flow.InitiatorUnknown, flow.EvidenceNone, true
	default:
		w.InitiatorBy = min(w.InitiatorBy, r.InitiatorBy)
	}
}
