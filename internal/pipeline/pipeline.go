// Package pipeline hands flow records to exporters. In come batches of expired
// flows from the flow table; out they go to every exporter through a bounded
// queue of its own. When a queue is full and its exporter is at work, the table
// waits, for a quarter of the time at most; else records are lost to that exporter
// and counted with the reason. So a slow or dead collector costs records of its own
// queue, and a burst costs none.
// waymark run is its only caller.
package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
)

// Exporter writes records to one place. One goroutine calls it.
type Exporter interface {
	// Name is the kind of output and Target where it goes, for status and logs.
	Name() string
	Target() string
	// Export hands records over and returns how many were taken, counted from
	// the first; fewer than all only with an error, and then the rest is offered
	// again after a pause. An empty batch opens the output. Where both halves of
	// a conversation are in a batch, they are neighbours. Records must be neither
	// changed nor kept. Export returns soon after ctx is done.
	Export(ctx context.Context, records []flow.Record) (int, error)
	// Close ends the output after the last Export.
	Close() error
}

// LossReporter is an Exporter that tells its collector what was lost before it.
// Called between two Exports when the totals have grown.
type LossReporter interface {
	ReportNotSent(NotSent)
}

// NotSent totals the records that an exporter was never given.
type NotSent struct {
	Records, Packets, Octets uint64
	First, Last              time.Time // when the first and the last was dropped
}

// Output is an exporter with the records it gets and the size of its queue.
type Output struct {
	Exporter Exporter
	Filter   filter.Filter // records that it does not match are counted, and not queued
	Queue    int           // records that may wait from one drain to the next
}

// Config holds the times of the pipeline.
type Config struct {
	FlushTimeout time.Duration // for what ends with the agent and what waits then
	Patience     time.Duration // that a full queue may hold up others in a row
	Backoff      time.Duration // pause after the first failure, doubled after each further one
	MaxBackoff   time.Duration
}

// Default leaves two of the five seconds in which the agent stops to others.
func Default() Config {
	return Config{FlushTimeout: 3 * time.Second, Patience: 2 * time.Second, Backoff: 100 * time.Millisecond, MaxBackoff: 5 * time.Second}
}

// Pipeline is the set of all outputs.
type Pipeline struct {
	cfg     Config
	outputs []*output
	buffers *buffers
	now     flow.Clock

	mu    sync.Mutex
	until time.Time // the end of the flush; zero: not begun
}

// New prepares outputs; nothing is opened before Run. Two exporters of the same
// name are numbered, so that names identify them.
func New(cfg Config, outputs []Output, log *slog.Logger, now flow.Clock) *Pipeline {
	p := &Pipeline{cfg: cfg, now: now}
	queued := 0
	named := map[string]int{}
	for _, out := range outputs {
		name := out.Exporter.Name()
		named[name]++
		if n := named[name]; n > 1 {
			name = fmt.Sprintf("%s-%d", name, n)
		}
		p.outputs = append(p.outputs, newOutput(cfg, name, out, log, now))
		queued += out.Queue
	}
	p.buffers = newBuffers(queued)
	return p
}

// Run exports what is published until ctx is done, then flushes the queues and
// closes the exporters. From the first PublishLast, or from the end of ctx, this
// may take FlushTimeout; what is left is counted as lost. Cancel ctx after the
// last Publish.
func (p *Pipeline) Run(ctx context.Context) error {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()

	var running sync.WaitGroup
	for _, o := range p.outputs {
		running.Go(func() { o.run(ctx, hard) })
	}
	<-ctx.Done()

	finished := make(chan struct{})
	go func() {
		running.Wait()
		close(finished)
	}()
	deadline := time.NewTimer(p.flushUntil().Sub(p.now()))
	defer deadline.Stop()
	select {
	case <-finished:
		return nil
	case <-deadline.C:
	}
	cancel()
	// Every exporter ends with its context, but for one in a system call that
	// cannot be interrupted, such as a write to a pipe that nobody reads.
	deadline.Reset(abandonAfter)
	select {
	case <-finished:
	case <-deadline.C:
		for _, o := range p.outputs {
			o.abandon()
		}
	}
	return nil
}

const abandonAfter = 100 * time.Millisecond

// Publish queues records for every exporter. Where a queue is full it waits as
// package pipeline says; what finds no room is lost to that exporter and counted.
// The slice belongs to the pipeline from now on; slices from Buffer are used again.
func (p *Pipeline) Publish(records []flow.Record) { p.publish(records, time.Time{}) }

// PublishLast is Publish for the flows that end with the agent: it may wait until
// the end of the flush.
func (p *Pipeline) PublishLast(records []flow.Record) { p.publish(records, p.flushUntil()) }

// flushUntil is the end of the flush, which the first call begins.
func (p *Pipeline) flushUntil() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until.IsZero() {
		p.until = p.now().Add(p.cfg.FlushTimeout)
	}
	return p.until
}

func (p *Pipeline) publish(records []flow.Record, until time.Time) {
	if len(records) == 0 || len(p.outputs) == 0 {
		p.buffers.put(records)
		return
	}
	b := p.buffers.wrap(records, len(p.outputs))
	for _, o := range p.outputs {
		o.offer(b, until)
	}
}

// Buffer returns an empty slice with room for BufferRecords, to be filled and published.
func (p *Pipeline) Buffer() []flow.Record { return p.buffers.get() }

// Status is the state of every output.
func (p *Pipeline) Status() []obs.Exporter {
	status := make([]obs.Exporter, 0, len(p.outputs))
	for _, o := range p.outputs {
		status = append(status, o.status())
	}
	return status
}
