package wire

import (
	"slices"
	"time"
)

// verdict is what is injected into one frame.
type verdict uint8

const (
	pass verdict = iota
	drop
	duplicate
	hold
)

// schedule decides what happens to frames and when they leave. It knows nothing
// of sockets and clocks: times are given, from one monotonic origin.
type schedule struct {
	cfg Direction

	queue   []departure   // by due time
	head    int           // of queue: what stands before has left
	held    *departure    // waits for a frame that overtakes it
	latest  time.Duration // arrival so far
	floor   time.Duration // no arrival counts as earlier
	matched uint64

	dropped, duplicated, reordered, waited uint64
}

type departure struct {
	due   time.Duration
	frame []byte
}

// arrive takes a frame that arrived at the given time. Frames leave in the order
// of these times, not of the calls: two CPUs that send on one link hand over in
// another order than they took in, by some microseconds. It keeps frame, unless
// it returns false; copyOf is called for a double.
func (s *schedule) arrive(at time.Duration, frame []byte, matches bool, copyOf func([]byte) []byte) (kept bool) {
	at = max(at, s.floor)
	s.latest = max(at, s.latest)
	due := at + s.cfg.Delay
	v := pass
	if matches {
		v = s.judge()
	}
	switch v {
	case drop:
		s.dropped++
		return false
	case hold:
		s.held = &departure{due, frame}
		return true
	}
	s.insert(departure{due, frame})
	if v == duplicate {
		s.duplicated++
		s.insert(departure{due, copyOf(frame)})
	}
	if matches && s.held != nil {
		s.reordered++
		s.insert(departure{max(due, s.held.due), s.held.frame})
		s.held = nil
	}
	return true
}

// clockSet says that times from now on do not compare with those before.
func (s *schedule) clockSet() { s.floor = s.latest }

// insert keeps the queue in the order of arrival: nearly always at its end.
func (s *schedule) insert(d departure) {
	i := len(s.queue)
	for i > s.head && s.queue[i-1].due > d.due {
		i--
	}
	s.queue = slices.Insert(s.queue, i, d)
}

func (s *schedule) judge() verdict {
	s.matched++
	every := func(n uint64) bool { return n > 0 && s.matched%n == 0 }
	switch {
	case every(s.cfg.DropEvery):
		return drop
	case every(s.cfg.DuplicateEvery):
		return duplicate
	case every(s.cfg.ReorderEvery) && s.held == nil:
		return hold
	}
	return pass
}

// next is when the next frame leaves; ok is false when there is none.
func (s *schedule) next() (due time.Duration, ok bool) {
	if s.held != nil {
		due, ok = s.held.due+s.cfg.ReorderWait, true
	}
	if s.head < len(s.queue) && (!ok || s.queue[s.head].due < due) {
		due, ok = s.queue[s.head].due, true
	}
	return due, ok
}

// take returns the next frame that is due now.
func (s *schedule) take(now time.Duration) (d departure, ok bool) {
	due, ok := s.next()
	if !ok || due > now {
		return departure{}, false
	}
	if s.head == len(s.queue) || s.queue[s.head].due > due {
		d = departure{due, s.held.frame}
		s.held = nil
		s.waited++
		return d, true
	}
	d = s.queue[s.head]
	s.queue[s.head].frame = nil
	s.head++
	if s.head == len(s.queue) {
		s.queue, s.head = s.queue[:0], 0
	} else if s.head >= 4096 && 2*s.head >= len(s.queue) {
		s.queue = s.queue[:copy(s.queue, s.queue[s.head:])]
		s.head = 0
	}
	return d, true
}
