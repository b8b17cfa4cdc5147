package producer

import (
	"context"
	"sync"
	"time"
)

// reach knows whether brokers can be reached. The client repeats requests without saying why, for as long as an interval may take.
type reach struct {
	mu     sync.Mutex
	since  time.Time // of failures without a success; zero: none
	err    error     // the last one
	cancel context.CancelCauseFunc
}

// patience is how long connections may fail before an interval is given up, for the agent to report why and try again.
const patience = 3 * time.Second

// within has connections that fail end what runs with a context.
func (r *reach) within(cancel context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.err, r.cancel = time.Time{}, nil, cancel
}

// dialed notes how an attempt to connect ended.
func (r *reach) dialed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	switch {
	case err == nil:
		r.since = time.Time{}
	case r.since.IsZero():
		r.since = time.Now()
	case time.Since(r.since) > patience:
		r.cancel(err)
	}
}

// why is what is known of an error better than that time was up.
func (r *reach) why(ctx context.Context, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && ctx.Err() != nil && r.err != nil {
		return r.err
	}
	return err
}
