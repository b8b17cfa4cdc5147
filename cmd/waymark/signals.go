package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/waymark-net/waymark/internal/command"
)

// sameStop is how long further signals to stop count as the first one: timeout(1)
// and terminals signal the process and its group.
const sameStop = time.Second

// stopper ends a run: politely first, at once when it is asked again.
type stopper struct {
	log   *slog.Logger
	clock func() time.Time
	force func()        // ends the process
	limit time.Duration // of run --for; 0: there is none
	start sync.Once     // the limit's
	after chan struct{} // closed when the limit is over
}

// newStopper makes one for this process; limit 0: it runs until a signal comes.
func newStopper(log *slog.Logger, limit time.Duration) *stopper {
	return &stopper{
		log: log, clock: time.Now, force: func() { os.Exit(command.ExitFailure) }, limit: limit, after: make(chan struct{}),
	}
}

// counting starts the limit, at its first call: loading and attaching may take longer than a user wants to count.
func (s *stopper) counting() {
	s.start.Do(func() {
		if s.limit > 0 {
			time.AfterFunc(s.limit, func() { close(s.after) })
		}
	})
}

// context ends at the first SIGTERM or SIGINT, or when the time is over. A signal
// later than sameStop after that forces the end. release gives the signals back.
func (s *stopper) context(parent context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	released := make(chan struct{})
	go s.wait(signals, released, cancel)
	return ctx, func() {
		signal.Stop(signals)
		close(released)
		cancel()
	}
}

func (s *stopper) wait(signals <-chan os.Signal, released <-chan struct{}, cancel func()) {
	reason := "run --for"
	select {
	case sig := <-signals:
		reason = sig.String()
	case <-s.after:
	case <-released:
		return
	}
	s.log.Info("stopping: draining, exporting, detaching", "reason", reason)
	command.Notify(s.log, "STOPPING=1")
	stopped := s.clock()
	cancel()
	for {
		select {
		case sig := <-signals:
			if s.clock().Sub(stopped) < sameStop {
				continue
			}
			s.log.Error("second stop signal: flows of the last interval may be lost", "reason", sig.String())
			s.force()
			return
		case <-released:
			return
		}
	}
}

// onHangup calls reload at every SIGHUP until ctx ends.
func onHangup(ctx context.Context, reload func()) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-hangup:
			reload()
		case <-ctx.Done():
			return
		}
	}
}
