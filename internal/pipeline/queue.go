package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// segment is the part of a batch that fits in a queue.
type segment struct {
	batch   *batch
	records []flow.Record
}

// queue is a bounded first-in-first-out of records. One goroutine takes; any may put.
type queue struct {
	limit int
	wake  chan struct{} // holds one token when there may be something to take

	mu       sync.Mutex
	segments []segment
	held     int           // records waiting or taken but not yet done with
	space    chan struct{} // closed when there is more space; nil: nobody waits
	stuck    bool          // nothing was done within a whole wait
	closed   bool
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, wake: make(chan struct{}, 1)}
}

// put queues as many records of a batch as fit and returns their
// number and whether the queue is still in use.
func (q *queue) put(b *batch, records []flow.Record) (n int, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, false
	}
	if n = min(len(records), max(q.limit-q.held, 0)); n > 0 {
		b.readers.Add(1)
		q.segments = append(q.segments, segment{b, records[:n]})
		q.held += n
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	return n, true
}

// stall is how long an exporter may take for one step before it counts as stuck.
const stall = 500 * time.Millisecond

// waitForSpace waits for the exporter to be done with something, for at most most.
// For an exporter that is stuck it does not wait.
func (q *queue) waitForSpace(most time.Duration) bool {
	q.mu.Lock()
	if q.stuck || q.closed || most <= 0 {
		q.mu.Unlock()
		return false
	}
	if q.space == nil {
		q.space = make(chan struct{})
	}
	space := q.space
	q.mu.Unlock()
	timer := time.NewTimer(min(most, stall))
	defer timer.Stop()
	select {
	case <-space:
		return true
	case <-timer.C:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stuck = q.space == space && most >= stall
	return false
}

// changed lets those go on who wait for space. It needs q.mu.
func (q *queue) changed() {
	q.stuck = false
	if q.space != nil {
		close(q.space)
		q.space = nil
	}
}

// take waits for the next segment. It returns false when ctx is done and
// nothing waits.
func (q *queue) take(ctx context.Context) (segment, bool) {
	for {
		if s, ok := q.tryTake(); ok {
			return s, true
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return q.tryTake()
		}
	}
}

func (q *queue) tryTake() (segment, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.segments) == 0 {
		return segment{}, false
	}
	s := q.segments[0]
	q.segments[0] = segment{}
	q.segments = q.segments[1:]
	return s, true
}

// done frees the space of as many records as were taken and dealt with.
func (q *queue) done(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n > 0 {
		q.held -= n
		q.changed()
	}
}

// len is the number of records that wait or are being exported.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held
}

// close empties the queue permanently and returns what waited in it.
func (q *queue) close() []segment {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed()
	rest := q.segments
	q.segments = nil
	return rest
}
