package agent

import (
	"sync"
	"time"
)

// pace is how often the table is drained: at the configured interval, and
// faster while somebody looks on.
type pace struct {
	changed chan struct{} // has an element after the pace changed

	mu       sync.Mutex
	interval time.Duration
	wanted   map[*time.Duration]struct{}
}

func newPace(interval time.Duration) *pace {
	return &pace{interval: interval, changed: make(chan struct{}, 1), wanted: map[*time.Duration]struct{}{}}
}

// set changes the configured interval.
func (p *pace) set(interval time.Duration) {
	p.mu.Lock()
	p.interval = interval
	p.mu.Unlock()
	p.notify()
}

// fastest bounds what onlookers can ask for: a drain waits some 20 ms for the
// programs of the other epoch.
const fastest = 100 * time.Millisecond

// request asks for drains at least this often until release is called.
func (p *pace) request(every time.Duration) (release func()) {
	every = max(every, fastest)
	p.mu.Lock()
	p.wanted[&every] = struct{}{}
	p.mu.Unlock()
	p.notify()
	return func() {
		p.mu.Lock()
		delete(p.wanted, &every)
		p.mu.Unlock()
		p.notify()
	}
}

func (p *pace) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// current is the time between two drains now.
func (p *pace) current() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.interval
	for every := range p.wanted {
		d = min(d, *every)
	}
	return d
}
