package store

import (
	"hash/maphash"
	"slices"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
)

// grouping merges records.
type grouping struct {
	fold      Fold
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
}

// digest stands for an identity in the index: a tenth of its size, and different
// for different ones but with a probability of 2⁻¹²⁸, whoever chose them.
type digest [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func digestOf(id *identity) digest {
	return digest{maphash.Comparable(seeds[0], *id), maphash.Comparable(seeds[1], *id)}
}

// pick is a key with what it does.
type pick struct {
	key      Key
	endpoint bool
	into     func(Key, *identity, *flow.Record)
}

func newGrouping(by By) *grouping {
	g := &grouping{
		fold: by.Fold, index: map[digest]*Row{}, whole: by.Whole(),
		// A peer is one of the host, or namespace, that its packets end at.
		once: by.Fold != FoldPeer && !by.has("iface") && !by.has("direction"),
	}
	for _, k := range by.Keys {
		def := &keyDefs[defOf(k.Name)]
		g.passage = g.passage || k.Name == "in" || k.Name == "out"
		g.picks = append(g.picks, pick{k, def.endpoint, def.pick})
		g.endpoints = g.endpoints || def.endpoint
		g.addresses = g.addresses || k.address()
	}
	return g
}

// add merges one record, of a flow that came in and left on two interfaces; r is
// changed. What it measured counts also where its packets are repeated.
func (g *grouping) add(r *flow.Record, in, out string, repeated uint64) {
	turned := g.fold.turn(r)
	id := g.identify(r)
	if g.passage {
		if turned {
			in, out = out, in
		}
		id.pass(g.picks, in, out)
	}
	d := digestOf(&id)
	w, ok := g.index[d]
	if !ok {
		w = g.newRow(&id, r)
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

func (g *grouping) identify(r *flow.Record) identity {
	var id identity
	for i := range g.picks {
		p := &g.picks[i]
		if !r.Unattributed || !p.endpoint {
			p.into(p.key, &id, r)
		}
	}
	// Without addresses and ports among the keys, what could not be attributed
	// adds to the row it belongs to.
	id.unattributed = g.endpoints && r.Unattributed
	if g.addresses {
		id.family = r.Family // an address tells it anyway, and what has none keeps it
	}
	return id
}

// newRow adds a row with its keys and no sums.
func (g *grouping) newRow(id *identity, r *flow.Record) *Row {
	if len(g.block) == 0 {
		g.block = make([]Row, min(len(g.merged)+16, 256))
	}
	w := &g.block[0]
	g.block = g.block[1:]
	g.merged = append(g.merged, w)
	*w = Row{
		Record: flow.Record{
			Iface: id.iface, Netns: id.netns, Direction: id.direction, Family: id.family,
			Src: id.src.Addr(), Dst: id.dst.Addr(), Proto: id.proto, SrcPort: id.sport, DstPort: id.dport,
			VLAN: id.vlan, InnerVLAN: id.innerVLAN, Tunnel: id.tunnel, VNI: id.vni, TOS: id.tos,
			Unattributed: id.unattributed,
		},
		In: id.in, Out: id.out,
		SrcPrefix: id.src, DstPrefix: id.dst,
	}
	if g.whole {
		w.IfIndex, w.TOS, w.FlowLabel, w.EndReason = r.IfIndex, r.TOS, r.FlowLabel, r.EndReason
	}
	return w
}

// count adds the packets of one record.
func (w *Row) count(r *flow.Record, turned bool) {
	if w.Records == 0 {
		w.First, w.Last, w.TTLMin = r.First, r.Last, r.TTLMin
	}
	w.Records++
	w.Counters.Add(&r.Counters)
	w.TCPFlags |= r.TCPFlags
	w.TTLMin = min(w.TTLMin, r.TTLMin)
	w.TTLMax = max(w.TTLMax, r.TTLMax)
	if r.First.Before(w.First) {
		w.First = r.First
	}
	if r.Last.After(w.Last) {
		w.Last = r.Last
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
