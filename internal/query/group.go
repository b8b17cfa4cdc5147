package query

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/digest"
	"github.com/waymark-net/waymark/internal/flow"
)

// Grouping makes rows of records, for engines: the same for all of them.
type Grouping struct {
	by         By
	picks      []pick
	endpoints  bool // some key is an address or a port
	addresses  bool // some key is an address
	whole      bool // rows are flows, and have all that their first record has
	once       bool // a packet counts in one row only
	passage    bool // some key is in or out
	everywhere bool // repeated packets count like others
	only       map[Digest]int
	host       string // whose records they are
	apart      bool   // rows of several hosts are distinguished
	byHost     bool   // because the host is a key
	away       *Away  // nil: all flows count at the host
	key        []byte
}

// Digest stands for the keys of a row: a tenth of their size.
type Digest = digest.Digest

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func digestOf(key []byte) Digest {
	return Digest{maphash.Bytes(seeds[0], key), maphash.Bytes(seeds[1], key)}
}

// pick is a key with its field; nil: it is in or out.
type pick struct {
	key   Key
	field *flow.Field
}

// NewGrouping is for a checked plan.
func NewGrouping(p *Plan) *Grouping {
	by := p.By
	g := &Grouping{
		by: by, whole: by.Whole(), everywhere: p.Everywhere, only: p.only, host: p.host,
		// A peer is one of the host, or namespace, that its packets end at.
		once: by.Fold != FoldPeer && !by.has("iface") && !by.has("direction"),
	}
	g.byHost, g.away = by.has(hostKey), p.away()
	g.apart = g.whole || g.byHost
	for _, k := range by.Keys {
		if k.Name == hostKey {
			continue
		}
		field := keyDefs[defOf(k.Name)].field
		g.picks = append(g.picks, pick{k, field})
		g.passage = g.passage || field == nil
		g.endpoints = g.endpoints || field != nil && field.Endpoint
		g.addresses = g.addresses || k.address()
	}
	return g
}

// Apart reports whether network namespaces are distinguished: a packet counts in each.
func (g *Grouping) Apart() bool {
	return g.once && slices.ContainsFunc(g.picks, func(p pick) bool { return p.key.Name == "netns" })
}

// Idle reports whether it makes no difference where packets were seen before.
func (g *Grouping) Idle() bool { return g.everywhere && !g.passage }

// Passage reports whether rows are distinguished by where packets came in or left.
func (g *Grouping) Passage() bool { return g.passage }

// Joins reports whether an engine has to find out again where packets were seen first: what it stored about that is of all records,
// and of rows that distinguish no places.
func (g *Grouping) Joins(p *Plan) bool {
	return !g.Idle() && (g.Apart() || g.Passage() || p.Records().TestsPlaces())
}

// Seen is where the packets of a record were seen.
type Seen struct {
	In, Out  string // interfaces on which they came in and left; empty: this host
	First    string // where those came in that were seen here first
	Repeated uint64 // packets that were seen before
	Part     Part
	away     bool // the flow counts at another host
}

// Part is what of a record is meant. Where only some of its packets are repeated,
// the others did not come in where those did, and are apart from them.
type Part uint8

const (
	WholeRecord  Part = iota
	RepeatedPart      // the repeated packets
	FreshPart         // the others
)

// Take makes what is meant of a record, and reports whether the fold turned it.
func (g *Grouping) Take(r *flow.Record, s *Seen) (turned bool) {
	switch s.Part {
	case RepeatedPart:
		r.RTT, r.PDM, r.IOAM = flow.RTT{}, nil, nil // once is enough
		r.Counters = r.Share(s.Repeated)
	case FreshPart:
		again := r.Share(s.Repeated)
		r.Subtract(&again)
		s.In, s.Repeated = s.First, 0
	}
	if g.everywhere {
		s.Repeated = 0
	}
	if s.away = g.away.record(r); s.away && !g.HostsApart() {
		s.Repeated = r.Packets
	}
	if turned = g.by.turn(r); turned {
		s.In, s.Out = s.Out, s.In
	}
	return turned
}

// Digest is that of the row of a record that was taken; step is Plan.Bucket of its interval.
// It is not meant where the plan does not ask for its group.
func (g *Grouping) Digest(r *flow.Record, s *Seen, step time.Time) (d Digest, meant bool) {
	g.key = g.appendKey(g.appendHost(g.key[:0], g.host), r, s)
	if d = digestOf(g.key); g.only != nil {
		if _, meant = g.only[d]; !meant {
			return d, false
		}
	}
	if !step.IsZero() {
		g.key = binary.NativeEndian.AppendUint64(g.key, uint64(step.UnixNano()))
		d = digestOf(g.key)
	}
	return d, true
}

// base is the digest of a row's keys without the time.
func (g *Grouping) base(w *Row) Digest {
	g.key = g.appendKey(g.appendHost(g.key[:0], w.Host), &w.Record, &Seen{In: w.In, Out: w.Out})
	return digestOf(g.key)
}

// Away finds flows that count at another host; nil: there are none.
func (g *Grouping) Away() *Away { return g.away }

// HostsApart reports whether rows have what each host counted once, though totals have it of one host.
func (g *Grouping) HostsApart() bool { return g.byHost && g.once }

// Add merges a record that was taken; r is changed. What it measured counts also where its
// packets are repeated.
func (g *Grouping) Add(w *Row, r *flow.Record, s *Seen, turned bool) {
	if s.Repeated > 0 {
		again := r.Share(s.Repeated)
		w.repeated.Add(&again)
		if g.once {
			r.Subtract(&again)
		}
	}
	if s.away && g.HostsApart() {
		w.addAway(&r.Counters)
	}
	if r.Packets > 0 || s.Repeated == 0 {
		w.count(r, turned)
	}
	w.measure(r)
	w.mergeIOAM(r, g.whole)
}

// appendKey writes what tells the row of a record from others. Without addresses
// and ports among the keys, what could not be attributed adds to the row it belongs
// to.
func (g *Grouping) appendKey(b []byte, r *flow.Record, s *Seen) []byte {
	if g.endpoints {
		b = append(b, boolean(r.Unattributed))
	}
	if g.addresses {
		b = append(b, r.Family) // an address tells it anyway, and what has none keeps it
	}
	for i := range g.picks {
		switch p := &g.picks[i]; {
		case p.key.Name == "in":
			b = appendText(b, s.In)
		case p.field == nil:
			b = appendText(b, s.Out)
		case r.Unattributed && p.field.Endpoint:
		case p.key.address():
			cut := p.key.cut(p.field.Addr(r))
			b = append(append(b, byte(cut.Bits())), cut.Addr().AsSlice()...)
		default:
			b = p.field.AppendKey(b, r)
		}
	}
	return b
}

func (g *Grouping) appendHost(b []byte, host string) []byte {
	if !g.apart || host == "" {
		return b
	}
	return appendText(b, host)
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

// Begin makes a row with its keys and no sums.
func (g *Grouping) Begin(w *Row, r *flow.Record, s *Seen, step time.Time) {
	*w = Row{Time: step, Host: g.host}
	w.Unattributed = g.endpoints && r.Unattributed
	if g.addresses {
		w.Family = r.Family
	}
	for i := range g.picks {
		switch p := &g.picks[i]; {
		case p.key.Name == "in":
			w.In = s.In
		case p.field == nil:
			w.Out = s.Out
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
func (g *Grouping) cut(w *Row) {
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
