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
		case <-a.pace.changed:
			// From the last drain on: onlookers that come and go must not put it off.
		case <-timer.C:
			began = time.Now()
			if err := a.drainOnce(false); err != nil {
				a.log.Error("draining the flow table", "error", err)
			}
		}
		timer.Reset(time.Until(began.Add(a.pace.current())))
	}
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
	a.marking.keep()
	a.hooks.beforeDrain()
	err := a.probe.Drain(a.merge)
	a.hooks.afterDrain()
	all, seenErr := a.seenBy()
	coverage := a.hooks.compare(all)
	err = errors.Join(err, seenErr, a.forgetGone(all))

	interval := a.store.Begin(a.intervalStart())
	a.pipeline.Begin()
	out := &batch{publish: a.pipeline.Publish, buffer: a.pipeline.Buffer}
	if last {
		out.publish = a.pipeline.PublishLast
		a.table.Flush(interval.Add, out.add)
	} else {
		a.table.EndInterval(a.clock(), interval.Add, out.add)
	}
	out.flush()
	end := a.clock()
	interval.End(end)
	a.noteDrain(start, end, coverage, err)
	return err
}

func (a *Agent) intervalStart() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.drain.Count == 0 {
		return a.started
	}
	return a.lastDrain
}

func (a *Agent) noteDrain(start, end time.Time, coverage []obs.Interface, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drain.Count++
	a.drain.Last = end.Sub(start)
	a.lastDrain = end
	a.coverage = coverage
	if err != nil {
		a.drain.Errors++
	}
}

// batch gathers expired records into the pipeline's buffers. Records that
// follow each other as the halves of a conversation stay in one batch.
type batch struct {
	publish func([]flow.Record)
	buffer  func() []flow.Record
	records []flow.Record
}

func (b *batch) add(r *flow.Record) {
	if n := len(b.records); n > 0 && n+1 >= cap(b.records) && !isReverse(&b.records[n-1], r) {
		b.flush()
	}
	if b.records == nil {
		b.records = b.buffer()
	}
	b.records = append(b.records, *r)
}

func (b *batch) flush() {
	if b.records != nil {
		b.publish(b.records)
		b.records = nil
	}
}

func isReverse(a, b *flow.Record) bool {
	return a.Src == b.Dst && a.Dst == b.Src && a.Proto == b.Proto && a.Direction != b.Direction
}
