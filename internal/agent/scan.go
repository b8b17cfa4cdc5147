package agent

import (
	"context"
	"errors"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
)

// scan drains the probe at every interval until ctx ends.
func (a *Agent) scan(ctx context.Context) error {
	began := time.Now()
	timer := time.NewTimer(a.pace.current())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case work := <-a.control:
			work()
		case <-a.pace.changed:
			// From the last drain on: onlookers that come and go must not put it off.
		case <-timer.C:
			began = time.Now()
			a.scanOnce()
		case done := <-a.early.asked:
			if a.intervals() == 0 || time.Since(began) >= earlyEvery {
				began = time.Now()
				a.scanOnce()
			}
			close(done)
		}
		timer.Reset(time.Until(began.Add(a.pace.current())))
	}
}

func (a *Agent) scanOnce() {
	if err := a.drainOnce(false); err != nil {
		a.log.Error("draining the flow table", "error", err)
	}
	a.trim()
}

// intervals is how many have ended.
func (a *Agent) intervals() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.drain.Count
}

// merge is where every delta of the probe arrives.
func (a *Agent) merge(d *flow.Delta) {
	a.totals.add(d)
	a.table.Merge(d)
}

// drainOnce ends an interval: history and exporters get what it brought. The
// last one exports every flow.
func (a *Agent) drainOnce(last bool) error {
	start := a.clock()
	a.headroom.Keep()
	a.hooks.beforeDrain()
	err := a.probe.Drain(a.merge)
	a.hooks.afterDrain()
	all, seenErr := a.seenBy()
	coverage := a.hooks.compare(all)
	err = errors.Join(err, seenErr, a.forgetGone(all))

	err = errors.Join(err, a.rewire())

	if last {
		a.leaving.last()
		a.table.Flush()
	} else {
		a.table.EndInterval(a.clock())
	}
	a.leaving.flush()
	end := a.clock()
	a.noteDrain(start, end, coverage, err)
	if !last {
		a.note(end, noteEvery)
	}
	return err
}

// rewire tells the history how interfaces hang together, after that changed.
func (a *Agent) rewire() error {
	changes := a.registry.Changes()
	if changes == a.wired {
		return nil
	}
	w, err := a.registry.Wiring()
	if err != nil {
		return err
	}
	a.wired = changes
	a.store.SetWiring(w)
	a.wiring.Store(w)
	return nil
}

// nextInterval makes the interval that ended visible. The table is locked.
func (a *Agent) nextInterval() {
	now := a.clock()
	a.history.End(now)
	a.history = a.store.Begin(now)
}

func (a *Agent) noteDrain(start, end time.Time, coverage []obs.Interface, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drain.Count++
	a.drain.Last = end.Sub(start)
	a.coverage = coverage
	if err != nil {
		a.drain.Errors++
	}
}
