// Package store keeps the recent history of flows in memory. In come, per scan
// interval, the records of every flow seen in it; out go answers to queries:
// filtered, merged by any keys, sorted, and followed as intervals end. The agent
// fills it, the API asks it.
//
// History is bounded in records. Intervals leave whole, oldest first, so that
// what is left adds up; of an interval that alone exceeds the bound, the largest
// flows are kept and the rest is summed.
package store

import (
	"sync"
	"time"
)

// Config bounds the store.
type Config struct {
	History int // records kept, over all intervals; at least 1
}

// Default keeps 131072 records, which take 20 MB, and half as much again where
// all flows are marked.
func Default() Config { return Config{History: 131072} }

// Store is the recent history. Its methods may be called at the same time; of
// Intervals there is one at a time.
type Store struct {
	limit int

	mu        sync.Mutex
	intervals []*interval   // oldest first; never changed once here
	records   int           // cost of all of them
	sequence  uint64        // of the newest
	changed   chan struct{} // closed when an interval ends
	hint      int           // size of the newest, from which the next is made
}

// New makes an empty store.
func New(cfg Config) *Store {
	return &Store{limit: max(cfg.History, 1), changed: make(chan struct{})}
}

// interval is what is kept of one scan interval.
type interval struct {
	sequence uint64
	from, to time.Time
	rows     []row
	links    []link
	told     told
	summed   uint64 // records that were too many to keep
}

// cost is what an interval takes of the bound. One without flows has one, too,
// or a silent host would keep them forever.
func (iv *interval) cost() int { return max(len(iv.rows), 1) }

// add makes an interval visible and lets old ones go.
func (s *Store) add(iv *interval) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sequence++
	iv.sequence = s.sequence
	s.hint = len(iv.rows)
	s.records += iv.cost()
	// A new array each time: readers hold the old one.
	first := 0
	for first < len(s.intervals) && s.records > s.limit {
		s.records -= s.intervals[first].cost()
		first++
	}
	kept := make([]*interval, 0, len(s.intervals)-first+1)
	s.intervals = append(append(kept, s.intervals[first:]...), iv)
	close(s.changed)
	s.changed = make(chan struct{})
}

// view is the history at one moment.
type view struct {
	intervals []*interval
	sequence  uint64
	changed   <-chan struct{}
}

func (s *Store) view() view {
	s.mu.Lock()
	defer s.mu.Unlock()
	return view{s.intervals, s.sequence, s.changed}
}
