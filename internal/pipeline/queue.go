package pipeline

import (
	"context"
	"sync"

	"github.com/waymark-net/waymark/internal/flow"
)

// segment is the part of a batch that found room in a queue.
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
	held     int // records waiting or taken but not yet done with
	whole    bool
	closed   bool
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, wake: make(chan struct{}, 1)}
}

// begin lets the queue take all of what comes until the next begin, beyond its
// limit, if there is room now.
func (q *queue) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.whole = q.held < q.limit
}

// put queues as many records of a batch as there is room for and returns their
// number and whether the queue is still in use.
func (q *queue) put(b *batch, beyondLimit bool) (n int, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, false
	}
	n = len(b.records)
	if !beyondLimit && !q.whole {
		n = min(n, max(q.limit-q.held, 0))
	}
	if n > 0 {
		q.segments = append(q.segments, segment{b, b.records[:n]})
		q.held += n
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	return n, true
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

// done makes room for as many records as were taken and dealt with.
func (q *queue) done(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held -= n
}

// len is the number of records that wait or are being exported.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held
}

// close empties the queue for good and returns what waited in it.
func (q *queue) close() []segment {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	rest := q.segments
	q.segments = nil
	return rest
}
