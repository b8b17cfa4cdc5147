// Package pipeline passes flow records to exporters. Input: batches of expired flows
// from the flow table. Output: the batches, through a bounded queue per exporter.
// When a queue is full and its exporter makes progress, the table waits, for at most
// a quarter of the time; otherwise records are dropped for this exporter and counted
// with the reason. A slow or dead collector costs records of its own queue only.
// Caller: waymark run.
package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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
	Records, Packets, Bytes uint64
	First, Last             time.Time // when the first and the last was dropped
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
	log     *slog.Logger
	now     flow.Clock
	buffers *buffers
	running sync.WaitGroup // goroutines of outputs

	mu      sync.Mutex
	outputs []*output // replaced, never changed
	until   time.Time // the end of the flush; zero: not begun
	// Contexts of Run: while records come, and as long as anything may be exported.
	soft, hard context.Context
	ended      bool // no output may start any more
}

// New prepares outputs; nothing is opened before Run.
func New(cfg Config, outputs []Output, log *slog.Logger, now flow.Clock) *Pipeline {
	p := &Pipeline{cfg: cfg, log: log, now: now, buffers: newBuffers()}
	for _, out := range outputs {
		p.Add(out)
	}
	return p
}

// Add has an output take part from the next Publish on. Exporters of the same
// name are numbered, so that names identify them.
func (p *Pipeline) Add(out Output) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := newOutput(p.cfg, p.freeName(out.Exporter.Name()), out, p.log, p.now)
	p.replace(append(slices.Clone(p.outputs), o))
	if p.soft != nil && !p.ended {
		p.start(o)
	}
}

// freeName is the name, or the name with the lowest number that no output has: one
// that takes the place of another keeps its name. It needs p.mu.
func (p *Pipeline) freeName(name string) string {
	numbered := name
	for n := 2; slices.ContainsFunc(p.outputs, func(o *output) bool { return o.name == numbered }); n++ {
		numbered = fmt.Sprintf("%s-%d", name, n)
	}
	return numbered
}

// Remove takes an exporter out. It exports what is queued, within FlushTimeout,
// and is closed; Remove does not wait for that.
func (p *Pipeline) Remove(e Exporter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.outputs, func(o *output) bool { return o.exporter == e })
	if i < 0 {
		return
	}
	o := p.outputs[i]
	p.replace(slices.Delete(slices.Clone(p.outputs), i, i+1))
	if o.finish != nil {
		o.finish()
	}
}

// replace needs p.mu.
func (p *Pipeline) replace(outputs []*output) {
	p.outputs = outputs
	queued := 0
	for _, o := range outputs {
		queued += o.queue.limit
	}
	p.buffers.keep(queued)
}

// start needs p.mu.
func (p *Pipeline) start(o *output) {
	soft, finish := context.WithCancel(p.soft)
	hard, abort := context.WithCancel(p.hard)
	o.finish = func() {
		finish()
		time.AfterFunc(p.cfg.FlushTimeout, abort)
	}
	p.running.Go(func() {
		defer finish()
		defer abort()
		o.run(soft, hard)
	})
}

// all are the outputs at this moment.
func (p *Pipeline) all() []*output {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outputs
}

// Run exports what is published until ctx is done, then flushes the queues and
// closes the exporters. From the first PublishLast, or from the end of ctx, this
// may take FlushTimeout; what is left is counted as lost. Cancel ctx after the
// last Publish.
func (p *Pipeline) Run(ctx context.Context) error {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()

	p.mu.Lock()
	p.soft, p.hard = ctx, hard
	for _, o := range p.outputs {
		p.start(o)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()

	finished := make(chan struct{})
	go func() {
		p.running.Wait()
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
		for _, o := range p.all() {
			o.abandon()
		}
	}
	return nil
}

const abandonAfter = 100 * time.Millisecond

// Publish queues records for every exporter. Where a queue is full it waits as
// package pipeline says; what does not fit is lost to that exporter and counted.
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
	outputs := p.all()
	if len(records) == 0 || len(outputs) == 0 {
		p.buffers.put(records)
		return
	}
	b := p.buffers.wrap(records, len(outputs))
	for _, o := range outputs {
		o.offer(b, until)
	}
}

// Buffer returns an empty slice with room for BufferRecords, to be filled and published.
func (p *Pipeline) Buffer() []flow.Record { return p.buffers.get() }

// Status is the state of every output.
func (p *Pipeline) Status() []obs.Exporter {
	outputs := p.all()
	status := make([]obs.Exporter, 0, len(outputs))
	for _, o := range outputs {
		status = append(status, o.status())
	}
	return status
}
