package interval

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waymark-net/waymark/internal/export/queue"
)

// send sends entries, oldest first, until ctx ends, or stopped is closed and nothing is left.
func (s *Sender) send(ctx context.Context, stopped <-chan struct{}) {
	pause := s.cfg.Pause
	other := false // the last answer was ErrOther, and nothing was taken
	for ctx.Err() == nil {
		batch, body := s.queue.Take(s.cfg.Most, s.to.Check)
		if len(batch) == 0 {
			select {
			case <-s.queue.Ready():
			case <-stopped:
				if s.queue.Counts().Entries == 0 {
					return
				}
			case <-ctx.Done():
			}
			continue
		}
		kept, err := s.to.Send(ctx, batch, body)
		kept = max(0, min(kept, len(batch)))
		if kept == 0 && err == nil {
			err = errNone
		}
		var refused *Refused
		var again error // the same is sent again, but not at once
		switch {
		case err == nil:
			s.received(batch[:kept], nil)
		case kept < len(batch) && errors.As(err, &refused):
			s.received(batch[:kept+1], refused)
		case kept < len(batch) && errors.Is(err, ErrOther):
			if kept > 0 {
				s.received(batch[:kept], nil)
			}
			if again = s.again(batch[kept].Run); again == nil && kept == 0 && other {
				again = err
			}
		default:
			s.received(batch[:kept], err)
			again = err
		}
		other = kept == 0 && errors.Is(err, ErrOther)
		if again == nil {
			pause = s.cfg.Pause
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s.failed(again)
		s.wait(ctx, stopped, pause, again)
		pause = min(2*pause, longestPause)
		select {
		case <-stopped: // another agent sends it
			return
		default:
		}
	}
}

// wait waits after an error, for as long as the receiver asks for, if it does.
func (s *Sender) wait(ctx context.Context, stopped <-chan struct{}, pause time.Duration, err error) {
	var busy *Busy
	if errors.As(err, &busy) && busy.After > 0 {
		pause = busy.After
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stopped:
	case <-ctx.Done():
	}
}

// received removes entries that are there; where it is refused, the last one is lost.
func (s *Sender) received(batch []queue.Entry, failed error) {
	var err error
	if s.cfg.Continues && len(batch) > 0 {
		err = s.queue.Keep(batch[len(batch)-1].Number)
	}
	err = errors.Join(err, s.queue.Done(len(batch)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil { // it is sent again by the next run, and known by its identity
		s.log.Error("cannot remove from the queue", "error", err)
	}
	var refused *Refused
	if errors.As(failed, &refused) {
		last := batch[len(batch)-1]
		batch = batch[:len(batch)-1]
		s.lose(refused.Reason, last.Records, refused)
		s.failing = refused.Error()
	}
	for i := range batch {
		s.sent += uint64(batch[i].Records)
	}
	if failed == nil && s.failing != "" {
		s.failing = ""
		s.log.Info("export works again", "retries", s.retries)
	}
}

// failed notes an error after which the same is sent again.
func (s *Sender) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retries++
	if s.failing == "" {
		s.log.Warn("export fails", "target", s.cfg.Target, "error", err)
	}
	s.failing = fmt.Sprintf("export to %s: %v", s.cfg.Target, err)
}

// again gives what waits of a run an identity that is new to the receiver.
func (s *Sender) again(run uint64) error {
	next := newRun()
	n, err := s.queue.Renumber(run, next, s.to.Renumber)
	s.log.Warn("the queue goes on as another run: the receiver has other intervals of this one, as after a snapshot of the machine was restored",
		"intervals", n, "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retries++
	if run == s.run {
		s.run, s.number = next, n
	}
	if err != nil {
		return fmt.Errorf("write intervals to %s as those of another run: %w: make space there", s.cfg.Path, err)
	}
	return nil
}
