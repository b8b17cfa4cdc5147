package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
)

// output is one exporter with its queue, goroutine and account.
type output struct {
	cfg      Config
	name     string
	target   string
	exporter Exporter
	filter   filter.Filter
	queue    *queue
	patience patience
	log      *slog.Logger
	now      flow.Clock
	finish   func() // ends the goroutine once the queue is empty; nil: not started

	mu        sync.Mutex
	exported  uint64
	filtered  uint64
	retries   uint64
	lost      []obs.Loss
	notSent   NotSent
	lastError string
	abandoned bool // its goroutine does not come back; the account is closed
	ended     bool // what it lost at the end was reported

	// Of the goroutine alone.
	reported uint64 // notSent.Records at the last report
	gone     bool
}

// reportShutdown logs once what the end of the exporter costs; it needs o.mu.
func (o *output) reportShutdown() {
	for _, l := range o.lost {
		if l.Where == whereQueue && l.Reason == reasonShutdown {
			o.logLoss(l.Where, l.Reason, l.Count)
		}
	}
	o.ended = true
}

func (o *output) logLoss(where, reason string, n uint64) {
	o.log.Warn("records are lost", "where", where, "reason", reason, "records", n)
}

func newOutput(cfg Config, name string, out Output, log *slog.Logger, now flow.Clock) *output {
	return &output{
		cfg: cfg, name: name, target: out.Exporter.Target(), exporter: out.Exporter, filter: out.Filter,
		queue: newQueue(out.Queue), now: now,
		log: log.With("exporter", name, "target", out.Exporter.Target()),
	}
}

// offer queues a batch, waits for room while the exporter is at work, and accounts
// for what found none. A non-zero until takes the place of patience.
func (o *output) offer(b *batch, until time.Time) {
	if !o.filter.Empty() {
		b = o.matching(b)
	}
	defer b.release()
	rest, reason := b.records, reasonQueueFull
	for {
		n, open := o.queue.put(b, rest)
		if rest = rest[n:]; len(rest) == 0 {
			return
		}
		if !open {
			reason = reasonShutdown
			break
		}
		if !o.waitForSpace(until) {
			break
		}
	}
	o.refuse(rest, reason)
}

func (o *output) waitForSpace(until time.Time) bool {
	if o.failing() {
		return false
	}
	began := o.now()
	if !until.IsZero() {
		return o.queue.waitForSpace(until.Sub(began))
	}
	more := o.queue.waitForSpace(o.patience.left(began, o.cfg.Patience))
	o.patience.spend(o.now().Sub(began))
	return more
}

func (o *output) failing() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lastError != ""
}

// matching is the part of a batch that the filter matches. It is chosen here, and
// not by the goroutine, so that the queue holds only what will be exported.
func (o *output) matching(b *batch) *batch {
	kept := b.home.get()
	for i := range b.records {
		if r := &b.records[i]; o.filter.Match(r) {
			kept = append(kept, *r)
		}
	}
	o.mu.Lock()
	o.filtered += uint64(len(b.records) - len(kept))
	o.mu.Unlock()
	home := b.home
	b.release()
	return home.wrap(kept, 1)
}

// run exports until ctx is done and the queue empty, or until hard is done.
func (o *output) run(ctx, hard context.Context) {
	if _, err := o.exporter.Export(hard, nil); err != nil {
		o.failed(err)
	}
	for hard.Err() == nil {
		s, ok := o.queue.take(ctx)
		if !ok {
			break
		}
		o.reportNotSent()
		rest := o.deliver(ctx, hard, s.records)
		o.drop(rest, reasonShutdown)
		s.batch.release()
	}
	for _, s := range o.queue.close() {
		o.drop(s.records, reasonShutdown)
		s.batch.release()
	}
	o.mu.Lock()
	if !o.abandoned {
		o.reportShutdown()
	}
	o.mu.Unlock()
	o.reportNotSent()
	if err := o.exporter.Close(); err != nil {
		o.failed(err)
	}
}

// deliver exports records, with pauses after failures, and returns those that
// were left when hard was done.
func (o *output) deliver(ctx, hard context.Context, records []flow.Record) []flow.Record {
	pause := o.cfg.Backoff
	for len(records) > 0 && hard.Err() == nil {
		if o.gone {
			o.drop(records, reasonGone)
			return nil
		}
		n, err := o.exporter.Export(hard, records)
		o.took(n)
		records = records[n:]
		if err == nil {
			o.recovered()
			continue
		}
		o.failed(err)
		if o.gone = errors.Is(err, ErrGone); o.gone || hard.Err() != nil {
			continue
		}
		if n > 0 {
			pause = o.cfg.Backoff
		}
		o.retry()
		o.wait(ctx, hard, pause)
		pause = min(2*pause, o.cfg.MaxBackoff)
	}
	return records
}

// wait pauses for half to all of d, so that the agents of a failed collector do
// not come back all at once. The end of ctx cuts a long pause short, as little
// time is left then.
func (o *output) wait(ctx, hard context.Context, d time.Duration) {
	stopping := ctx.Done()
	if ctx.Err() != nil {
		stopping, d = nil, min(d, o.cfg.Backoff)
	}
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stopping:
	case <-hard.Done():
	}
}

func (o *output) reportNotSent() {
	r, ok := o.exporter.(LossReporter)
	o.mu.Lock()
	lost := o.notSent
	o.mu.Unlock()
	if !ok || lost.Records == o.reported {
		return
	}
	o.reported = lost.Records
	r.ReportNotSent(lost)
}

// took accounts for records of the queue that the exporter accepted.
func (o *output) took(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.abandoned {
		o.exported += uint64(n)
		o.queue.done(n)
	}
}

// drop accounts for records of the queue that the exporter will not see.
func (o *output) drop(records []flow.Record, reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.abandoned {
		o.addNotSent(records, reason)
		o.queue.done(len(records))
	}
}

// refuse accounts for records that did not fit into the queue.
func (o *output) refuse(records []flow.Record, reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addNotSent(records, reason)
}

// abandon closes the account of an exporter that hangs: what it holds is lost.
func (o *output) abandon() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue.close()
	if held := o.queue.len(); held > 0 {
		o.addLoss(whereQueue, reasonShutdown, uint64(held))
		o.queue.done(held)
	}
	o.reportShutdown()
	o.abandoned = true
}

func (o *output) retry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.retries++
}

// addNotSent needs o.mu.
func (o *output) addNotSent(records []flow.Record, reason string) {
	if len(records) == 0 {
		return
	}
	s := &o.notSent
	s.Last = o.now()
	if s.Records == 0 {
		s.First = s.Last
	}
	s.Records += uint64(len(records))
	for i := range records {
		s.Packets += records[i].Packets
		s.Bytes += records[i].Bytes
	}
	o.addLoss(whereQueue, reason, uint64(len(records)))
}

// addLoss logs a reason when it first occurs, a shutdown with the sum at its end;
// it needs o.mu.
func (o *output) addLoss(where, reason string, n uint64) {
	if shutdown := where == whereQueue && reason == reasonShutdown; shutdown && o.ended {
		o.logLoss(where, reason, n)
	} else if !shutdown && !slices.ContainsFunc(o.lost, func(l obs.Loss) bool { return l.Where == where && l.Reason == reason }) {
		o.logLoss(where, reason, n)
	}
	for i := range o.lost {
		if l := &o.lost[i]; l.Where == where && l.Reason == reason {
			l.Count += n
			return
		}
	}
	o.lost = append(o.lost, obs.Loss{Where: where, Reason: reason, Count: n})
}

func (o *output) failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if lost := (*LostError)(nil); errors.As(err, &lost) && lost.Records > 0 {
		o.addLoss(whereOutput, lost.Reason, lost.Records)
	}
	if o.lastError == "" {
		o.log.Warn("export fails", "error", err)
	}
	o.lastError = err.Error()
}

func (o *output) recovered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lastError != "" {
		o.lastError = ""
		o.log.Info("export works again", "retries", o.retries)
	}
}

func (o *output) status() obs.Exporter {
	o.mu.Lock()
	defer o.mu.Unlock()
	return obs.Exporter{
		Name: o.name, Target: o.target,
		Queued: o.queue.len(), QueueSize: o.queue.limit,
		Exported: o.exported, Filtered: o.filtered, Retries: o.retries,
		Lost: slices.Clone(o.lost), LastError: o.lastError,
	}
}
