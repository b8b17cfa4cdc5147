// Package store keeps the recent history of flows in memory. Input: per scan
// interval, the records of every flow seen in it. Output: answers to queries:
// filtered, merged by any keys, sorted, and followed as intervals end. The agent
// fills it, the API asks it.
//
// History is bounded in records, those of the running interval included.
// Intervals leave whole, oldest first, so that what is left adds up; of an
// interval that alone exceeds the bound, the largest flows are kept and the rest
// is summed.
package store

import (
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// Config bounds the store.
type Config struct {
	History int // records kept, over all intervals; at least 1
}

// Default keeps 131072 records, which take 23 MB, and half as much again where
// all flows are marked.
func Default() Config { return Config{History: 131072} }

// Store is the recent history. Its methods may be called at the same time; of
// Intervals there is one at a time.
type Store struct {
	limit  int
	host   string
	behind []query.Source // older intervals
	onEnd  func(Ended)    // nil: nobody keeps them longer

	mu        sync.Mutex
	intervals []*interval   // oldest first; never changed once here
	records   int           // cost of all of them, and of the one that is being filled
	sequence  uint64        // of the newest
	changed   chan struct{} // closed when an interval ends
	wiring    *flow.Wiring  // of intervals that end from now on
	began     time.Time     // the first interval; zero: none began
	dropped   time.Time     // the end of the latest interval that had to leave; zero: none had
}

// New makes an empty store.
func New(cfg Config) *Store {
	return &Store{limit: max(cfg.History, 1), changed: make(chan struct{})}
}

// interval is what is kept of one scan interval.
type interval struct {
	sequence uint64
	from, to time.Time
	rows     rows
	links    []link
	drops    []*flow.Drop // what rows name by number
	reported packed
	wiring   *flow.Wiring
	summed   uint64 // records that were too many to keep
}

// cost is what an interval takes of the bound. One without flows has one, too,
// or a silent host would keep them forever.
func (iv *interval) cost() int { return max(iv.rows.len(), 1) }

// reserve makes room for more rows of an interval that has some: old intervals
// leave. It returns how many may be added; 0: the interval alone is too large.
func (s *Store) reserve(has int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if has >= s.limit {
		return 0
	}
	s.records++
	s.shrink()
	n := min(rowsChunk, s.limit-s.records+1)
	s.records += n - 1
	return n
}

// shrink lets old intervals go until the history fits.
func (s *Store) shrink() {
	first := 0
	for first < len(s.intervals) && s.records > s.limit {
		s.records -= s.intervals[first].cost()
		s.dropped = s.intervals[first].to
		first++
	}
	if first > 0 { // a new array: readers hold the old one
		s.intervals = append([]*interval(nil), s.intervals[first:]...)
	}
}

// add makes an interval visible for which some rows were reserved, and returns the one before it.
func (s *Store) add(iv *interval, reserved int) (before *interval) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sequence++
	iv.sequence = s.sequence
	iv.wiring = s.wiring
	s.records += iv.cost() - reserved
	if n := len(s.intervals); n > 0 {
		before = s.intervals[n-1]
	}
	s.shrink()
	kept := make([]*interval, 0, len(s.intervals)+1)
	s.intervals = append(append(kept, s.intervals...), iv)
	close(s.changed)
	s.changed = make(chan struct{})
	return before
}

// view is the history at one moment.
type view struct {
	intervals []*interval
	sequence  uint64
	changed   <-chan struct{}
	began     time.Time
	dropped   time.Time
}

func (s *Store) view() view {
	s.mu.Lock()
	defer s.mu.Unlock()
	return view{s.intervals, s.sequence, s.changed, s.began, s.dropped}
}
