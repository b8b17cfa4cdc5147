package query

import (
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// Answer is what a query found.
type Answer struct {
	From, To  time.Time // what the rows cover; both zero: no interval has ended yet
	Intervals int
	By        []Key
	Rows      []Row
	Whole     []Row         // where the plan has steps: its groups over all the time, in the order of Rows
	Groups    int           // rows before the limit
	Total     flow.Counters // of all packets, each counted once unless Plan.Everywhere
	Repeated  flow.Counters // of what was seen again on a further interface
	Records   uint64
	Step      time.Duration // 0: one row for each group
	// Asked is Plan.Since, AskedUntil Plan.Until. Short is why the answer covers less than that.
	Asked, AskedUntil time.Time
	Short             Short
	// Oldest is when the earliest interval began that there is, whether it was asked for or not; zero: none.
	Oldest time.Time
	// Summed is how many records of the window were too many to keep: they are
	// in unattributed rows.
	Summed uint64
	// Missed is how many intervals a follower was too late for.
	Missed uint64
	// Lost is how many intervals of the window the history could not keep, or could not read.
	Lost uint64
	// Partial is why some records of the window are not in the answer, and what to do about it;
	// empty: all are.
	Partial string
	// Shared is how many flows several hosts saw: each counts at the host that is nearest to its source. Of Unsure, counts or
	// clocks had to decide which one that is; of Behind, a further host counted over a sixteenth more packets.
	Shared, Unsure, Behind uint64
	// EachHost is why packets count at each host that saw them instead; empty: they count once, or at one host.
	EachHost string
}

// Short is why the history reaches back less than was asked; empty: it does not.
type Short string

const (
	ShortHistory Short = "history" // older intervals had to leave: Config.History
	ShortStarted Short = "started" // nothing was counted before
)

// oldest is the earliest begin of an interval.
func oldest(spans []Span) (at time.Time) {
	for _, s := range spans {
		if at.IsZero() || !s.Oldest.IsZero() && s.Oldest.Before(at) {
			at = s.Oldest
		}
	}
	return at
}

// short says why engines, oldest first, do not reach back to a time.
func short(spans []Span, since time.Time) Short {
	for _, s := range spans {
		switch {
		case since.IsZero() || s.Began.IsZero():
		case since.Before(s.Dropped):
			return ShortHistory
		case since.Before(s.Began):
			return ShortStarted
		default:
			return ""
		}
	}
	return ""
}
