// Package analyzer sends the intervals of an agent to an analyzer (waymark analyze). Input: the intervals of package store as they
// end. Output: files, which are the queue, and requests. Caller: the agent.
//
// An interval is in a file until the analyzer says that it is kept: neither an agent nor an analyzer that is killed loses it, and
// the analyzer knows by its identity what it has.
package analyzer

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/store"
)

// Config says where intervals go and where they wait.
type Config struct {
	URL           string // https://host:port
	CA, Cert, Key string // PEM files
	Path          string // directory of the queue
	Size          uint64 // bytes of it
	Timeout       time.Duration
	Sampling      uint32        // one packet in so many is counted
	Topology      func() []byte // of the host as it is, compressed; nil: none is sent
	TopologyEvery time.Duration // at most
}

// Default waits for an analyzer in another continent.
func Default() Config { return Config{Timeout: 30 * time.Second, TopologyEvery: 10 * time.Second} }

// maxWaiting is how many records may wait in memory to be written to the queue.
const maxWaiting = 1 << 18

// Exporter sends intervals.
type Exporter struct {
	cfg     Config
	log     *slog.Logger
	version string
	client  *client
	queue   *queue
	wake    chan struct{} // holds one value once an interval ended

	mu       sync.Mutex
	waiting  []store.Ended
	records  int // of those
	sent     uint64
	retries  uint64
	lost     map[string]uint64 // records by reason
	failing  string
	encoder  []byte
	boot     uint64
	sequence uint64
	unshown  string // why the analyzer does not have the topology
	shown    time.Time
}

// New takes the directory of the queue. Files of the configuration are read now.
func New(cfg Config, log *slog.Logger) (*Exporter, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	return &Exporter{
		cfg: cfg, log: log, version: obs.ReadBuild().Version, client: c, wake: make(chan struct{}, 1), lost: map[string]uint64{}, boot: newBoot(),
	}, nil
}

// newBoot is a number that no other run has.
func newBoot() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// Listen opens the queue, and reads what an earlier agent left. A queue that another exporter still has is no error: after a
// reload, it is that of the same queue with another configuration, which ends soon.
func (e *Exporter) Listen() error {
	q, err := openQueue(e.cfg.Path, e.cfg.Size)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case errors.Is(err, errLocked):
		e.failing = err.Error()
		return nil
	case err != nil:
		return err
	}
	if e.queue, e.failing = q, ""; q.count > 0 {
		e.log.Info("analyzer: intervals of an earlier run are sent first", "intervals", q.count, "bytes", q.bytes)
	}
	return nil
}

// lockedPause is how long is waited before a queue is tried again that another exporter has.
const lockedPause = 100 * time.Millisecond

// opened waits for the queue, unless Listen got it.
func (e *Exporter) opened(ctx context.Context) bool {
	for e.queue == nil {
		timer := time.NewTimer(lockedPause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		if err := e.Listen(); err != nil || e.queue == nil && ctx.Err() != nil {
			return false
		}
	}
	return true
}

// Close gives back what Listen took.
func (e *Exporter) Close() { e.queue.close() }

// Append takes an interval that ended; it waits for nothing.
func (e *Exporter) Append(ended store.Ended) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.records > 0 && e.records+ended.Len() > maxWaiting {
		e.lose("disk_slow", ended.Len())
		return
	}
	e.waiting = append(e.waiting, ended)
	e.records += ended.Len()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// lose counts records; e.mu is held.
func (e *Exporter) lose(reason string, records int) { e.lost[reason] += uint64(records) }

// endPatience is how long the last interval of an agent is tried to be sent; it is in the queue in any case.
const endPatience = 2 * time.Second

// Run writes intervals to the queue, and sends what is there, until ctx ends.
func (e *Exporter) Run(ctx context.Context) error {
	if !e.opened(ctx) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.lose("queue_not_written", e.records)
		e.log.Error("analyzer: the queue could not be opened, what waited for it is lost", "path", e.cfg.Path, "records", e.records, "reason", e.failing)
		return nil
	}
	defer e.queue.close()
	var sending sync.WaitGroup
	more := make(chan struct{}, 1)
	sending.Go(func() { e.sendAll(ctx, more) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-e.wake:
			e.write()
			select {
			case more <- struct{}{}:
			default:
			}
		}
	}
	sending.Wait()
	e.write()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	for e.queue.length() > 0 && last.Err() == nil {
		if _, err := e.send(last); err != nil {
			break
		}
	}
	return nil
}

// write moves what waits in memory to the queue.
func (e *Exporter) write() {
	for {
		e.mu.Lock()
		if len(e.waiting) == 0 {
			e.mu.Unlock()
			return
		}
		ended := e.waiting[0]
		e.waiting = append([]store.Ended(nil), e.waiting[1:]...)
		e.records -= ended.Len()
		e.sequence++
		boot, sequence := e.boot, e.sequence
		e.mu.Unlock()

		var encoder store.Encoder // each interval is readable alone
		b := encoder.Append(frame.Begin(e.encoder[:0]), &ended)
		frame.Finish(b, boot, sequence, uint32(ended.Len()))
		if cap(b) < 1<<20 {
			e.encoder = b
		}
		dropped, err := e.queue.add(b, boot, sequence, uint32(ended.Len()))
		e.mu.Lock()
		if dropped > 0 {
			e.lose("queue_full", dropped)
			e.note("the queue is full, its oldest intervals are lost: set export.analyzer.size to more, or start the analyzer")
		}
		if err != nil {
			e.lose("queue_not_written", ended.Len())
			e.note("write the queue: " + err.Error())
		}
		e.mu.Unlock()
	}
}

// note logs the first of a row of failures; e.mu is held.
func (e *Exporter) note(failing string) {
	if e.failing == "" {
		e.log.Warn("analyzer: "+failing, "url", e.cfg.URL)
	}
	e.failing = failing
}

// The pause after a failure doubles.
const (
	leastPause = 200 * time.Millisecond
	mostPause  = 30 * time.Second
)

// sendAll sends what is in the queue until ctx ends.
func (e *Exporter) sendAll(ctx context.Context, more <-chan struct{}) {
	pause := leastPause
	for ctx.Err() == nil {
		if e.queue.length() == 0 {
			select {
			case <-ctx.Done():
				return
			case <-more:
			}
			continue
		}
		wait, err := e.send(ctx)
		if err == nil {
			pause = leastPause
			continue
		}
		if wait == 0 {
			wait, pause = pause, min(2*pause, mostPause)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// send sends the oldest intervals in one request; wait is how long the analyzer wants to be left alone after an error.
func (e *Exporter) send(ctx context.Context) (wait time.Duration, err error) {
	batch, body, damaged := e.queue.oldest(frame.MostRequest)
	if damaged > 0 {
		e.mu.Lock()
		e.lose("queue_damaged", damaged)
		e.mu.Unlock()
	}
	if len(batch) == 0 {
		return 0, nil
	}
	answer, refused := e.client.post(ctx, frame.Path, body, e.version, e.lostRecords())
	kept := answer.Kept
	records := e.queue.remove(batch[:min(kept, len(batch))])
	if refused == nil && answer.Topology != nil {
		e.show(ctx, *answer.Topology)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent += uint64(records)
	if refused == nil {
		if e.failing != "" {
			e.log.Info("analyzer: intervals are sent again", "url", e.cfg.URL)
			e.failing = ""
		}
		return 0, nil
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	e.retries++
	var r *refusal
	if errors.As(refused, &r) && r.reason == frame.ReasonOther && kept < len(batch) {
		e.again(batch[kept].boot)
		return 0, nil
	}
	e.note(refused.Error())
	if r != nil {
		wait = r.after
	}
	return wait, refused
}

// show sends the topology, unless the analyzer has it.
func (e *Exporter) show(ctx context.Context, has uint32) {
	if e.cfg.Topology == nil || time.Since(e.shown) < e.cfg.TopologyEvery {
		return
	}
	b := e.cfg.Topology()
	if len(b) == 0 || frame.Checksum(b) == has {
		return
	}
	e.shown = time.Now()
	_, err := e.client.post(ctx, frame.TopologyPath, b, e.version, e.lostRecords())
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.unshown
	if e.unshown = ""; err != nil && ctx.Err() == nil {
		e.unshown = "send the topology: " + err.Error()
	}
	if e.unshown != "" && e.unshown != before {
		e.log.Warn("analyzer: "+e.unshown, "url", e.cfg.URL)
	}
}

// again gives what waits of a run an identity that is new to the analyzer. It has other intervals with theirs: this machine
// was set back to an earlier state.
func (e *Exporter) again(boot uint64) {
	next := newBoot()
	n, err := e.queue.rename(boot, next)
	e.log.Warn("analyzer: it has other intervals of this run, as after a snapshot was restored: the queue goes on as another run",
		"intervals", n, "error", err)
	if boot == e.boot {
		e.boot, e.sequence = next, uint64(n)
	}
}

func (e *Exporter) lostRecords() (n uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, one := range e.lost {
		n += one
	}
	return n
}

// Status is like that of other exporters; what waits is counted in intervals.
func (e *Exporter) Status() obs.Exporter {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := obs.Exporter{Name: "analyzer", Target: e.cfg.URL, Exported: e.sent, Retries: e.retries, LastError: cmp.Or(e.failing, e.unshown), Lost: []obs.Loss{}}
	s.Queued, s.QueueSize = e.queue.records(), 0
	for _, reason := range []string{"disk_slow", "queue_damaged", "queue_full", "queue_not_written"} {
		if n := e.lost[reason]; n > 0 {
			s.Lost = append(s.Lost, obs.Loss{Where: s.Name, Reason: reason, Count: n})
		}
	}
	return s
}
