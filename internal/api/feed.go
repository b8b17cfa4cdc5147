package api

import (
	"bytes"
	"context"
	"sync"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/memory"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// feeds answers followers: once for each query and interval, however many follow
// it. What they have not read yet is bounded: a follower who is late for several
// intervals is dropped, and so are the slowest when all answers together take
// too much.
type feeds struct {
	history History
	origin  flow.Origin
	queries chan struct{} // places of those who compute answers
	most    int           // bytes of all answers that somebody still reads

	mu        sync.Mutex
	feeds     map[string]*feed
	followers int
	stop      context.CancelFunc // nil: nobody follows
	held      int                // bytes of answers
	dropped   uint64
}

// feed is one query with those who follow it.
type feed struct {
	query     query.Plan
	followers map[*follower]struct{}
}

// follower is one reader of a feed. It is its handler's; all but wake and cut
// needs the lock of feeds.
type follower struct {
	wake chan struct{} // holds one token when there is something to take
	cut  func()        // ends a write that is under way

	reading, next *sharedAnswer
	missed        uint64 // intervals before next
	late          int    // in a row
	gone          bool
}

// sharedAnswer is an answer without what differs between its readers.
type sharedAnswer struct {
	answer  query.Answer // without rows
	rows    [][]byte     // their JSON, in pieces
	bytes   int          // of it
	readers int
}

// growthFollowed is how much the heap may grow between two collections of garbage
// while somebody follows, in percent. Every answer is garbage soon; with Go's 100 %,
// it would take as much again.
const growthFollowed = 50

// patienceLate is for how many answers in a row a follower may be late.
const patienceLate = 2

func newFeeds(h History, o flow.Origin, queries chan struct{}, most int) *feeds {
	return &feeds{history: h, origin: o, queries: queries, most: most, feeds: map[string]*feed{}}
}

// join adds a follower of a checked query. key is the same for the same query.
func (f *feeds) join(key string, q query.Plan, cut func()) (fl *follower, leave func()) {
	fl = &follower{wake: make(chan struct{}, 1), cut: cut}
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.feeds[key]
	if d == nil {
		// More rows than this do not fit into an answer: none is shorter than the empty one.
		least := len(appendRow(nil, RowFields(q.By.Keys, 0), &f.origin, &query.Row{}))
		if most := max(f.most/4/least, 1); q.Limit == 0 || q.Limit > most {
			q.Limit = most
		}
		d = &feed{query: q, followers: map[*follower]struct{}{}}
		f.feeds[key] = d
	}
	d.followers[fl] = struct{}{}
	f.followers++
	if f.stop == nil {
		var ctx context.Context
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(context.Background())
		restore := memory.CollectSooner(growthFollowed)
		f.stop = func() { cancel(); restore() }
		watching := make(chan struct{})
		go f.run(ctx, watching)
		<-watching // what ends from now on is answered
	}
	return fl, func() { f.leave(key, d, fl) }
}

func (f *feeds) leave(key string, d *feed, fl *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release(&fl.reading)
	f.release(&fl.next)
	fl.gone = true
	delete(d.followers, fl)
	if len(d.followers) == 0 && f.feeds[key] == d {
		delete(f.feeds, key)
	}
	if f.followers--; f.followers == 0 {
		f.stop()
		f.stop = nil
	}
}

// run answers for each interval until nobody follows.
func (f *feeds) run(ctx context.Context, watching chan struct{}) {
	// Watch fails with its context only.
	_ = f.history.Follow(ctx, func() { close(watching) }, func(e store.Period) error {
		f.mu.Lock()
		all := make([]*feed, 0, len(f.feeds))
		for _, d := range f.feeds {
			all = append(all, d)
		}
		f.mu.Unlock()
		for _, d := range all {
			select {
			case f.queries <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			f.publish(d, f.encode(e.Answer(d.query)))
			<-f.queries
		}
		return nil
	})
}

// encode makes the rows' JSON, which takes at most a quarter of the memory for
// answers: Answer.Groups says how many there are.
func (f *feeds) encode(a query.Answer) *sharedAnswer {
	s := &sharedAnswer{answer: a}
	fields, space := RowFields(a.By, 0), f.most/4
	var piece []byte
	for next := 0; next < len(a.Rows) && s.bytes < space; {
		piece, next = appendRows(piece[:0], fields, &f.origin, a.Rows, next, min(pieceSize, space-s.bytes))
		s.rows = append(s.rows, bytes.Clone(piece))
		s.bytes += len(piece)
	}
	s.answer.Rows = nil
	return s
}

// publish gives an answer to all followers of a feed.
func (f *feeds) publish(d *feed, s *sharedAnswer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held += s.bytes
	for fl := range d.followers {
		if fl.gone {
			continue
		}
		fl.missed += s.answer.Missed
		if fl.next != nil {
			f.release(&fl.next)
			fl.missed++
			if fl.late++; fl.late >= patienceLate {
				f.drop(fl)
				continue
			}
		}
		fl.next = s
		s.readers++
		select {
		case fl.wake <- struct{}{}:
		default:
		}
	}
	if s.readers == 0 {
		f.held -= s.bytes
	}
	for f.held > f.most && f.dropSlowest() {
	}
}

// dropSlowest drops the follower who is the latest, of these the one with the
// largest answers.
func (f *feeds) dropSlowest() bool {
	var slowest *follower
	size := func(fl *follower) (n int) {
		for _, s := range []*sharedAnswer{fl.reading, fl.next} {
			if s != nil {
				n += s.bytes / s.readers
			}
		}
		return n
	}
	for _, d := range f.feeds {
		for fl := range d.followers {
			if fl.gone || fl.reading == nil && fl.next == nil {
				continue
			}
			if slowest == nil || fl.late > slowest.late || fl.late == slowest.late && size(fl) > size(slowest) {
				slowest = fl
			}
		}
	}
	if slowest == nil {
		return false
	}
	f.drop(slowest)
	return true
}

// drop ends a follower; its handler leaves.
func (f *feeds) drop(fl *follower) {
	f.release(&fl.reading)
	f.release(&fl.next)
	fl.gone = true
	f.dropped++
	fl.cut()
	select {
	case fl.wake <- struct{}{}:
	default:
	}
}

// release gives up a reader's hold of an answer.
func (f *feeds) release(s **sharedAnswer) {
	if *s == nil {
		return
	}
	if (*s).readers--; (*s).readers == 0 {
		f.held -= (*s).bytes
	}
	*s = nil
}

// take returns the next answer, nil when there is none yet. ok is false when the
// follower was dropped.
func (f *feeds) take(fl *follower) (s *sharedAnswer, missed uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release(&fl.reading)
	if fl.gone {
		return nil, 0, false
	}
	s, missed = fl.next, fl.missed
	fl.reading, fl.next = s, nil
	if s != nil {
		fl.missed, fl.late = 0, 0
	}
	return s, missed, true
}

// timedOut counts a follower who took nothing of an answer for too long.
func (f *feeds) timedOut(fl *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !fl.gone {
		f.dropped++
	}
}

// done gives up the answer that was read.
func (f *feeds) done(fl *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release(&fl.reading)
}

func (f *feeds) count() (followers int, dropped uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.followers, f.dropped
}
