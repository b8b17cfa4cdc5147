package api

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// admit waits until the history is fresh and there is a place for a query; done gives it back.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (done func(), err error) {
	s.freshen(r.Context())
	if err := acquire(r.Context(), s.waiting, 0); err != nil {
		w.Header().Set("Retry-After", "5")
		return nil, err
	}
	release := s.connections.keep(r.Context())
	if err := acquire(r.Context(), s.queries, queryWait); err != nil {
		release()
		<-s.waiting
		w.Header().Set("Retry-After", "5")
		return nil, err
	}
	return func() {
		<-s.queries
		release()
		<-s.waiting
	}, nil
}

func (s *Server) freshen(ctx context.Context) {
	if s.deps.Freshen == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	s.deps.Freshen(ctx)
}

// acquire takes a place, or tells to come again.
func acquire(ctx context.Context, places chan struct{}, wait time.Duration) error {
	select {
	case places <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	return &Error{http.StatusServiceUnavailable, fmt.Sprintf("%d others are asking already", cap(places)), "ask again in a few seconds"}
}
