package store

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

	In, Out string // interfaces on which a flow came in and left; empty: this host, or no keys

	SrcPrefix, DstPrefix netip.Prefix // like Src and Dst, cut as the key says

	Records uint64
	Back    flow.Counters // of the records that a fold turned round; part of the sums
	RTTSeen uint64        // records with a round trip

	repeated             flow.Counters // of packets that count in another row
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

func (m mean) value() time.Duration {
	if m.n == 0 {
		return 0
	}
	return m.sum / time.Duration(m.n)
}

// Answer is what a query found.
type Answer struct {
	From, To  time.Time // what the rows cover; both zero: no interval has ended yet
	Intervals int
	By        []Key
	Rows      []Row
	Groups    int           // rows before the limit
	Total     flow.Counters // of all packets, each counted once unless Query.Everywhere
	Repeated  flow.Counters // of what was seen again on a further interface
	Records   uint64
	// Asked is Query.Since. Short is why the answer covers less than that.
	Asked time.Time
	Short Short
	// Summed is how many records of the window were too many to keep: they are
	// in unattributed rows.
	Summed uint64
	// Missed is how many intervals a follower was too late for.
	Missed uint64
}

// Short is why the history reaches back less than was asked; empty: it does not.
type Short string

const (
	ShortHistory Short = "history" // older intervals had to leave: Config.History
	ShortStarted Short = "started" // nothing was counted before
)

func (v *view) short(since time.Time) Short {
	switch {
	case since.IsZero():
		return ""
	case since.Before(v.dropped):
		return ShortHistory
	case since.Before(v.began):
		return ShortStarted
	}
	return ""
}
