package disk

import (
	"slices"
	"sync"

	"github.com/waymark-net/waymark/internal/store"
)

// maxWaiting is how many records may wait to be written. Where the disk is slower, intervals are
// not kept, and counted.
const maxWaiting = 1 << 18

// queue are the intervals that wait to be written. Its lock is held for nothing else: neither a file that is written
// nor one that is read delays the drain, which adds them.
type queue struct {
	mu      sync.Mutex
	waiting []store.Ended
	records int           // that wait
	refused []store.Head  // did not fit, and are not counted yet
	wake    chan struct{} // holds one value once there is something to do
}

func (q *queue) add(e store.Ended) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.records > 0 && q.records+e.Len() > maxWaiting {
		q.refused = append(q.refused, e.Head())
	} else {
		q.waiting = append(q.waiting, e)
		q.records += e.Len()
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take is the next interval.
func (q *queue) take() (e store.Ended, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return e, false
	}
	e = q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	q.records -= e.Len()
	return e, true
}

// overrun are the intervals that were refused since the last call.
func (q *queue) overrun() []store.Head {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.refused
	q.refused = nil
	return list
}
