package pipeline

import (
	"sync"
	"time"
)

// patience is how long others may wait for one exporter: a quarter of the time.
// What is not needed is saved up to a bound, for bursts.
type patience struct {
	mu    sync.Mutex
	saved time.Duration
	since time.Time // saved is of this time
}

// refill is the part of the time that may be spent waiting: one in so many.
const refill = 4

// left is how long may be waited from now on.
func (p *patience) left(now time.Time, most time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.saved = most
	} else {
		p.saved = min(most, p.saved+now.Sub(p.since)/refill)
	}
	p.since = now
	return p.saved
}

// spend takes what was waited off.
func (p *patience) spend(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saved -= d
}
