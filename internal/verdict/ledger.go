package verdict

import (
	"sync"
	"time"
)

// Counter is a running total that a rule reads: of a stage, of an exporter, of the kernel.
type Counter struct {
	Kind  Kind
	ID    string // its identity among those of the kind
	Where Where
	N     uint64 // packets, records, segments or delays
	Of    int64  // what they are part of, or their sum: segments sent, nanoseconds
	// Older counters have counted since before the agent: what they show first is no change.
	Older bool
}

// InNoFlow are counters of IP packets that an interface has and no flow, by reason. They are no
// verdict themselves: what a rule drops behind a link, or XDP takes, is not lost on the link.
const InNoFlow Kind = "in_no_flow"

// DroppedAt are counters of packets of flows that the gate dropped at an interface.
const DroppedAt Kind = "dropped_at"

// DroppedByRule is the reason of packets that the gate dropped.
const DroppedByRule = "dropped_by_rule"

type counterID struct {
	kind Kind
	id   string
}

// Bounds of a ledger.
const (
	maxPeriods  = 512 // an hour at 10 s and, since old ones are joined, days at less resolution
	maxCounters = 256 // that change in a period
)

// Ledger keeps by how much counters grew in recent periods. Periods without change take no
// memory but their times. Its methods may be called at the same time.
type Ledger struct {
	mu      sync.Mutex
	last    map[counterID]Counter
	periods []period // oldest first
}

type period struct {
	from, to time.Time
	grown    []Counter
}

// NewLedger makes an empty one.
func NewLedger() *Ledger { return &Ledger{} }

// Add ends a period with what counters show. The first call begins the first period.
func (l *Ledger) Add(at time.Time, counters []Counter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.last == nil
	p := period{from: at, to: at}
	if n := len(l.periods); n > 0 {
		p.from = l.periods[n-1].to
	}
	now := make(map[counterID]Counter, len(counters))
	for _, c := range counters {
		id := counterID{c.Kind, c.ID}
		before, known := l.last[id]
		now[id] = c
		if first || !known && c.Older || len(p.grown) == maxCounters {
			continue
		}
		if known && c.N >= before.N { // else it began again
			c.N, c.Of = c.N-before.N, c.Of-before.Of
		}
		if c.N > 0 || c.Of != 0 {
			p.grown = append(p.grown, c)
		}
	}
	l.last = now
	l.periods = append(l.periods, p)
	if len(l.periods) > maxPeriods {
		l.join()
	}
}

// join makes one of each two of the older half of the periods.
func (l *Ledger) join() {
	half := len(l.periods) / 2
	var joined []period
	for i := 0; i+1 < half; i += 2 {
		a, b := l.periods[i], l.periods[i+1]
		joined = append(joined, period{a.from, b.to, sum([]period{a, b})})
	}
	l.periods = append(joined, l.periods[half&^1:]...)
}

// Between is by how much counters grew in the periods that overlap a time range, and what these
// cover; both zero: none.
func (l *Ledger) Between(from, to time.Time) (grown []Counter, first, last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var in []period
	for _, p := range l.periods {
		if p.to.After(from) && p.from.Before(to) {
			in = append(in, p)
		}
	}
	if len(in) == 0 {
		return nil, first, last
	}
	return sum(in), in[0].from, in[len(in)-1].to
}

// sum adds the growth of periods, in the order in which counters appear.
func sum(periods []period) (out []Counter) {
	at := map[counterID]int{}
	for _, p := range periods {
		for _, c := range p.grown {
			id := counterID{c.Kind, c.ID}
			if i, ok := at[id]; ok {
				n, of := out[i].N+c.N, out[i].Of+c.Of
				out[i] = c
				out[i].N, out[i].Of = n, of
				continue
			}
			at[id] = len(out)
			out = append(out, c)
		}
	}
	return out
}
