package topology

import "time"

// backoff schedules another look at namespaces that could not be joined: a name
// exists a moment before its namespace does.
type backoff struct {
	timer *time.Timer
	delay time.Duration
}

const (
	firstRetry = 2 * time.Millisecond
	lastRetry  = 30 * time.Second
)

func newBackoff() *backoff {
	b := &backoff{timer: time.NewTimer(time.Hour)}
	b.timer.Stop()
	b.reset()
	return b
}

func (b *backoff) reset() { b.delay = firstRetry }

func (b *backoff) again() {
	b.timer.Reset(b.delay)
	b.delay = min(2*b.delay, lastRetry)
}
