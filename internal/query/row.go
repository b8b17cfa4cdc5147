package query

import (
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// Row is one line of an answer: the keys, and sums over its records.
type Row struct {
	// Keys that were not asked for are zero, and the initiator is that of all
	// records or unknown; RTT is the mean of those seen.
	flow.Record

	Host string // where it was counted; empty: at the host that answers, or at several

	In, Out string // interfaces on which a flow came in and left; empty: this host, or no keys

	Time time.Time // the step of time it counts; zero: the plan has none

	SrcPrefix, DstPrefix netip.Prefix // like Src and Dst, cut as the key says

	Records uint64
	Back    flow.Counters // of the records that a fold turned round; part of the sums
	RTTSeen uint64        // records with a round trip

	Digest Digest // stands for all keys, Time among them

	repeated             flow.Counters  // of packets that count in another row
	away                 *flow.Counters // of packets that other rows have, too, and count there; part of the sums
	responder, initiator mean
	disputed             bool          // records differ in the initiator
	path                 flow.IOAMPath // of the first record that has one
	rank                 int64         // to sort by
}

// Rate is the mean rate of the row in bits of IP a second, from its first packet
// to its last, but over a second at least: a burst of a millisecond is no rate.
func (w *Row) Rate() float64 { return float64(w.Bytes) * 8 / w.Lasted().Seconds() }

// Lasted is the time that rates of the row are of.
func (w *Row) Lasted() time.Duration { return max(w.Last.Sub(w.First), time.Second) }

// addAway adds to a new sum: rows are copied.
func (w *Row) addAway(c *flow.Counters) {
	sum := *c
	if w.away != nil {
		sum.Add(w.away)
	}
	w.away = &sum
}

// mean of durations, 0 when there are none.
type mean struct {
	sum time.Duration
	n   uint64
}

func (m *mean) add(d time.Duration) {
	if d > 0 {
		m.sum += d
		m.n++
	}
}

func (m *mean) merge(o mean) {
	m.sum += o.sum
	m.n += o.n
}

func (m mean) value() time.Duration {
	if m.n == 0 {
		return 0
	}
	return m.sum / time.Duration(m.n)
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

// Merge adds what another engine, or an earlier or later part of the same one, has of the row.
// o comes after w.
func (w *Row) Merge(o *Row, whole bool) {
	if w.Host != o.Host {
		w.Host = ""
	}
	switch {
	case o.Records == 0:
	case w.Records == 0:
		w.CopyMerged(&o.Record)
	default:
		w.Record.Merge(&o.Record)
	}
	w.Records += o.Records
	w.Back.Add(&o.Back)
	w.repeated.Add(&o.repeated)
	if o.away != nil {
		w.addAway(o.away)
	}
	w.RTTSeen += o.RTTSeen
	w.responder.merge(o.responder)
	w.initiator.merge(o.initiator)
	if o.disputed {
		w.Initiator, w.InitiatorBy, w.disputed = flow.InitiatorUnknown, flow.EvidenceNone, true
	}
	w.mergeInitiator(&o.Record)
	if o.PDM != nil {
		if w.PDM == nil {
			w.PDM = o.PDM.Clone()
		} else {
			w.PDM.Add(o.PDM)
		}
	}
	w.mergePaths(o, whole)
}

// mergePaths is mergeIOAM of rows.
func (w *Row) mergePaths(o *Row, whole bool) {
	switch {
	case o.IOAM == nil:
		return
	case w.IOAM == nil:
		w.IOAM, w.path = o.IOAM.Clone(), o.path
		return
	case whole:
		w.IOAM.Add(o.IOAM)
		return
	}
	w.IOAM.AddSums(o.IOAM)
	switch {
	case o.path.ID == 0:
	case w.path.ID == 0:
		w.path, w.IOAM.IOAMPath = o.path, o.IOAM.IOAMPath
	default:
		w.IOAM.Agree(&w.path, &o.path)
		w.IOAM.IOAMPath.Keep(&o.IOAM.IOAMPath)
	}
}

// RoundTrips are the sums of handshakes, and of how many records.
type RoundTrips struct {
	Seen                                         uint64
	Responder, Responders, Initiator, Initiators uint64
}

// Measured sets what was measured of its records, where no record was made.
func (w *Row) Measured(t *RoundTrips) {
	w.RTTSeen = t.Seen
	w.responder, w.initiator = mean{time.Duration(t.Responder), t.Responders}, mean{time.Duration(t.Initiator), t.Initiators}
}

// Finish computes what follows from the sums.
func (w *Row) Finish() {
	w.RTT = flow.RTT{Responder: w.responder.value(), Initiator: w.initiator.value()}
}

// Again are the packets of the row that were seen before, which Counters have, too, where rows
// are distinguished by interface or direction.
func (w *Row) Again() flow.Counters { return w.repeated }
