package store

import (
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
)

// grouping merges records.
type grouping struct {
	fold      Fold
	services  bool
	picks     []pick
	endpoints bool // some key is an address or a port
	addresses bool // some key is an address
	whole     bool // rows are flows, and have all that their first record has
	once      bool // a packet counts in one row only
	passage   bool // some key is in or out

	onlyRepeated flow.Counters // of rows that have nothing else, and are none

	index  map[digest]*Row
	merged []*Row
	block  []Row // where the next row stands: they are large, and never move
	key    []byte
}

// digest stands for the keys of a row in the index: a tenth of their size, and different
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
		fold: by.Fold, services: by.Services, index: map[digest]*Row{}, whole: by.Whole(),
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

// add merges one record, of a flow that came in and left on two interfaces; r is
// changed. What it measured counts also where its packets are repeated.
func (g *grouping) add(r *flow.Record, in, out string, repeated uint64) {
	turned := g.fold.turn(r)
	if turned {
		in, out = out, in
	}
	if g.services {
		dropClientPort(r)
	}
	g.appendKey(r, in, out)
	d := digestOf(g.key)
	w, ok := g.index[d]
	if !ok {
		w = g.newRow(r, in, out)
		g.index[d] = w
	}
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

// newRow adds a row with its keys and no sums.
func (g *grouping) newRow(r *flow.Record, in, out string) *Row {
	if len(g.block) == 0 {
		g.block = make([]Row, min(len(g.merged)+16, 256))
	}
	w := &g.block[0]
	g.block = g.block[1:]
	g.merged = append(g.merged, w)
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
	return w
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

// end completes the sums and drops the rows that the filter does not mean, and
// those of nothing but repeated packets.
func (g *grouping) end(f filter.Filter) {
	g.merged = slices.DeleteFunc(g.merged, func(w *Row) bool {
		if w.Records == 0 && f.Empty() {
			g.onlyRepeated.Add(&w.repeated)
		}
		return w.Records == 0
	})
	for _, w := range g.merged {
		w.RTT = flow.RTT{Responder: w.responder.value(), Initiator: w.initiator.value()}
	}
	if !f.Empty() {
		g.merged = slices.DeleteFunc(g.merged, func(w *Row) bool { return !f.Match(&w.Record) })
	}
}

// rows are all rows in order, or the first of them.
func (g *grouping) rows(rank func(*Row) int64, order func(a, b *Row) int, limit int) []Row {
	for _, w := range g.merged {
		if rank != nil {
			w.rank = rank(w)
		}
	}
	slices.SortFunc(g.merged, order)
	chosen := g.merged
	if limit > 0 && len(chosen) > limit {
		chosen = chosen[:limit]
	}
	rows := make([]Row, len(chosen))
	for i, w := range chosen {
		rows[i] = *w
	}
	return rows
}
