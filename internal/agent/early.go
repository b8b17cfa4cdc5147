package agent

import (
	"context"
	"time"
)

// early has the table drained for queries before the first scan interval is over,
// so that an agent that was just started has something to answer with.
type early struct {
	synced chan struct{}      // closed when the interfaces of the start are attached
	asked  chan chan struct{} // each is closed once it was drained
}

func newEarly() *early {
	return &early{synced: make(chan struct{}), asked: make(chan chan struct{})}
}

// earlyEvery bounds the drains that queries cause.
const earlyEvery = time.Second

// freshen returns when the history holds what was counted until now, or at most
// earlyEvery before. Once a scan interval has passed it does nothing.
func (a *Agent) freshen(ctx context.Context) {
	if a.intervals() > 0 && a.clock().Sub(a.started) > a.pace.current() {
		return
	}
	select {
	case <-a.early.synced:
	case <-ctx.Done():
		return
	}
	done := make(chan struct{})
	select {
	case a.early.asked <- done:
		<-done
	case <-ctx.Done():
	}
}
