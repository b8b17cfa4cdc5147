package device

import (
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/device/decode"
	"github.com/waymark-net/waymark/internal/analyze/state"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// Bounds of what is kept of one exporter.
const (
	mostFlows      = 65536 // of an interval; of more, the largest are kept, and the rest is summed
	mostInterfaces = 16384
	idleTime       = time.Minute // for which it is known who began a conversation
)

// exporter is one device, or one of its observation domains: a host of the analyzer.
type exporter struct {
	name     string
	keeper   Keeper
	share    *share
	log      func(key, text string, args ...any)
	sampling uint32 // configured; 0: the device says it

	mu       sync.Mutex
	live     int  // flows in the table
	full     bool // new records are summed
	sessions map[sessionKey]*session
	table    *flow.Table
	filling  *store.Interval
	ended    store.Ended
	ifaces   []iface
	numbers  map[uint32]flow.Iface
	status   state.Device
	offset   time.Duration
	seen     time.Time
	bytes    uint64
	sampled  bool // it does not count all packets
	active   bool // it sent something in this interval
	boot     uint64
	sequence uint64
}

// sessionKey distinguishes senders: templates and sequence numbers are its own (RFC 7011, 8).
type sessionKey struct {
	protocol decode.Protocol
	port     uint16
}

type session struct {
	*decode.Session
	sequence sequence
	used     time.Time
}

type iface struct {
	index uint32
	name  string
}

func newExporter(name string, keeper Keeper, of *share, address netip.Addr, domain, sampling uint32, now time.Time, log func(key, text string, args ...any)) *exporter {
	e := &exporter{
		name: name, keeper: keeper, share: of, log: log, sampling: sampling, sessions: map[sessionKey]*session{}, numbers: map[uint32]flow.Iface{0: 0},
		ifaces: []iface{{0, "if0"}}, boot: rand.Uint64(),
		status: state.Device{Address: address.String(), Domain: domain, Lost: map[string]uint64{}, Dropped: map[string]uint64{}},
	}
	e.begin(now)
	e.table = flow.NewTable(flow.TableConfig{
		MaxFlows: mostFlows, ActiveTimeout: 24 * time.Hour, IdleTimeout: idleTime, IfIndex: func(i flow.Iface) uint32 { return e.ifaces[i].index },
	}, func(i flow.Iface) (name, netns string) { return e.ifaces[i].name, "" }, flow.TableOutput{
		Interval: e.record, Expired: func(*flow.Record) {},
	})
	return e
}

// begin begins an interval, in a store of its own: those before need no memory here.
func (e *exporter) begin(now time.Time) {
	s := store.New(store.Config{History: mostFlows})
	s.OnEnd(func(ended store.Ended) { e.ended = ended })
	e.filling = s.Begin(now)
}

// record takes what a flow had in an interval.
func (e *exporter) record(r *flow.Record) {
	// Which of two directions came first is not known of some of their packets.
	if e.sampled && r.InitiatorBy == flow.EvidenceFirst {
		r.Initiator, r.InitiatorBy = flow.InitiatorUnknown, flow.EvidenceNone
	}
	e.filling.Add(r)
}

// take reads a datagram.
func (e *exporter) take(h *decode.Header, b []byte, port uint16, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.full = e.share.full(e.live)
	s := e.session(sessionKey{h.Protocol, port}, now)
	e.status.Datagrams++
	e.bytes += uint64(len(b))
	e.active, e.seen = true, now
	if !h.Exported.IsZero() {
		e.offset = h.Exported.Sub(now)
		if e.offset < 0 && e.offset > -time.Second { // many devices send whole seconds
			e.offset = 0
		}
	}
	if s.sequence.repeated(crc32.ChecksumIEEE(b), len(b)) {
		e.status.Repeated++
		return
	}
	units, known := s.Decode(h, now, e)
	e.count()
	e.lose(h.Protocol, s.sequence.take(h, units, known, now))
}

// count notes how many flows the table has.
func (e *exporter) count() {
	live := int(e.table.Stats().Live)
	e.share.flows.Add(int64(live - e.live))
	e.live = live
}

func (e *exporter) lose(p decode.Protocol, n uint64) {
	if n > 0 {
		e.status.Lost[p.Unit()] += n
	}
}

// session is that of a sender; the one that was silent for the longest time makes space.
func (e *exporter) session(k sessionKey, now time.Time) *session {
	s := e.sessions[k]
	if s == nil {
		if most := e.share.mostSessions(); len(e.sessions) >= most {
			oldest := slices.MinFunc(slices.Collect(maps.Keys(e.sessions)), func(a, b sessionKey) int { return e.sessions[a].used.Compare(e.sessions[b].used) })
			e.end(oldest)
		}
		s = &session{Session: decode.NewSession(e.sampling)}
		e.sessions[k] = s
		e.share.sessions.Add(1)
		if name := k.protocol.String(); !slices.Contains(e.status.Protocols, name) {
			e.status.Protocols = append(e.status.Protocols, name)
		}
	}
	s.used = now
	return s
}

func (e *exporter) end(k sessionKey) {
	s := e.sessions[k]
	s.End(e)
	e.lose(k.protocol, s.sequence.end())
	delete(e.sessions, k)
	e.share.sessions.Add(-1)
}

// Flow implements decode.Output.
func (e *exporter) Flow(d *flow.Delta, in, other uint32) {
	e.status.Records++
	d.Iface = e.number(in)
	if other != 0 {
		d.Other = e.number(other)
	}
	if d.Unattributed = e.full; e.full {
		e.status.Summed++
	}
	e.table.Merge(d)
}

// number is that of an interface here: SNMP has numbers of 32 bits.
func (e *exporter) number(index uint32) flow.Iface {
	if n, ok := e.numbers[index]; ok {
		return n
	}
	if len(e.ifaces) >= mostInterfaces {
		e.status.Dropped["interfaces"]++
		return 0
	}
	n := flow.Iface(len(e.ifaces))
	e.ifaces = append(e.ifaces, iface{index, fmt.Sprintf("if%d", index)})
	e.numbers[index] = n
	return n
}

// Interface implements decode.Output.
func (e *exporter) Interface(index uint32, name string) {
	if n := e.number(index); n != 0 {
		e.ifaces[n].name = name
	}
}

// Sampled implements decode.Output.
func (e *exporter) Sampled(n float64) {
	e.status.Sampling = n
	e.sampled = e.sampled || n > 1
}

// Count implements decode.Output.
func (e *exporter) Count(why decode.Reason, n uint64) { e.status.Dropped[string(why)] += n }

// drop counts a datagram that is not read.
func (e *exporter) drop(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status.Dropped[why]++
}

// turn ends the interval.
func (e *exporter) turn(now time.Time) (ended store.Ended, send bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, s := range e.sessions {
		s.Tend(now, e)
		e.lose(k.protocol, s.sequence.settle(now))
	}
	e.table.EndInterval(now)
	e.count()
	e.filling.End(now)
	ended, e.ended = e.ended, store.Ended{}
	e.begin(now)
	e.status.Summed += ended.Summed()
	send = e.active || ended.Len() > 0
	e.active = false
	return ended, send
}

// keep ends the interval and hands it on.
func (e *exporter) keep(now time.Time) {
	ended, send := e.turn(now)
	if !send {
		return
	}
	e.sequence++
	if err := e.keeper.Keep(&ended, e.boot, e.sequence, e.heard()); err != nil {
		e.mu.Lock()
		e.status.Dropped["not_kept"] += uint64(ended.Len())
		e.mu.Unlock()
		e.log("not kept "+e.name, "records of a device are lost", "host", e.name, "records", ended.Len(), "error", err)
	}
}

// heard is what was learned of the device since the interval before.
func (e *exporter) heard() Heard {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := Heard{Address: e.status.Address, Offset: e.offset, Bytes: e.bytes}
	e.bytes = 0
	return h
}

// report is what the status shows.
func (e *exporter) report() (d *state.Device, seen time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.status
	s.Protocols, s.Lost, s.Dropped = slices.Clone(s.Protocols), maps.Clone(s.Lost), maps.Clone(s.Dropped)
	s.Interfaces = len(e.ifaces) - 1
	for _, session := range e.sessions {
		s.Waiting += session.Waiting()
	}
	return &s, e.seen
}
