// Package interval sends whole intervals, each until its receiver has it. Input: the intervals of package store as they end. Output: files
// of package queue, and calls of a Receiver. Callers: the exporters analyzer, clickhouse and kafka.
//
// An interval is in a file until it is received: neither an agent nor a receiver that is killed loses it. A receiver knows by its
// identity, run and number, what it has.
package interval

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/export/queue"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/store"
)

// Config says what is sent, and where it waits.
type Config struct {
	Name   string // of the exporter
	Target string // where it sends, for people
	Key    string // of the configuration, with the directory
	Path   string // the directory
	Size   uint64 // bytes of it
	Most   int    // bytes that are sent at a time; one interval is in any case
	// Continues: intervals have the numbers of the store, which go on across runs. Else each run counts from 1.
	Continues bool
	Pause     time.Duration // after the first failure; it doubles with each
}

// Receiver is where intervals go.
type Receiver interface {
	// Encode is an interval as it waits and is sent. The bytes are valid until the next call.
	Encode(ended *store.Ended, run, number uint64) ([]byte, error)
	// Check finds bytes that are not what Encode gave.
	Check(e queue.Entry, b []byte) error
	// Send sends intervals; kept is how many from the first are there now, with or without an error. Errors are Refused, Busy, ErrOther,
	// or any other after which the same is tried again.
	Send(ctx context.Context, batch []queue.Entry, body []byte) (kept int, err error)
	// Renumber gives what Encode gave another identity; only after ErrOther.
	Renumber(b []byte, next queue.Entry)
	Close()
}

const (
	// FirstPause suits what answers at once.
	FirstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
	// lockedPause is how long is waited before a queue is tried again that another exporter has.
	lockedPause = 100 * time.Millisecond
	// longLocked is for how long the exporter before a reload may have the queue; it takes flushTime to end.
	longLocked = flushTime + time.Second
	// flushTime is how long the end of the agent waits for what can still be sent; the rest stays in the queue.
	flushTime = 2 * time.Second
	// maxWaiting is how many records may wait in memory to be written to the queue, while the disk is slow.
	maxWaiting = 1 << 18
)

// Sender sends intervals. It is a service of the agent: Listen, Run.
type Sender struct {
	cfg  Config
	to   Receiver
	log  *slog.Logger
	wake chan struct{} // holds one value once something waits

	mu      sync.Mutex
	queue   *queue.Queue // nil: it is not open
	last    uint64
	run     uint64
	number  uint64 // of the last interval of this run
	waiting []store.Ended
	records int // of those
	sent    uint64
	retries uint64
	lost    map[string]uint64 // records by reason
	failing string
}

// New prepares a sender; nothing is opened before Listen.
func New(cfg Config, to Receiver, log *slog.Logger) *Sender {
	return &Sender{cfg: cfg, to: to, log: log.With("exporter", cfg.Name), run: newRun(), lost: map[string]uint64{}, wake: make(chan struct{}, 1)}
}

// newRun is a number that no other run has.
func newRun() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// Listen opens the queue, and finds what an earlier agent left. A queue that another exporter still has is no error: after a
// reload, it is that of the same queue with another configuration, which ends soon.
func (s *Sender) Listen() error {
	last := queue.Last(s.cfg.Path)
	q, err := queue.Open(s.cfg.Path, s.cfg.Size)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", s.cfg.Key, s.cfg.Path, err)
		s.last, s.failing = last, err.Error()
		if errors.Is(err, queue.ErrLocked) {
			return nil
		}
		return err
	}
	s.queue, s.last, s.failing = q, last, ""
	if c := q.Counts(); c.Entries > 0 {
		s.log.Info("intervals of an earlier run are sent first", "intervals", c.Entries, "bytes", c.Bytes)
	}
	return nil
}

// opened waits for the queue, unless Listen got it.
func (s *Sender) opened(ctx context.Context) bool {
	began, warned := time.Now(), false
	for s.queue == nil {
		if !warned && time.Since(began) > longLocked {
			warned = true
			s.log.Warn("intervals wait in memory, as the queue cannot be opened", "error", s.Status().LastError)
		}
		timer := time.NewTimer(lockedPause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		_ = s.Listen() // the status has the error
		if s.queue == nil && ctx.Err() != nil {
			return false
		}
	}
	return true
}

// Close gives back what Listen took, where Run is not called.
func (s *Sender) Close() {
	if s.queue != nil {
		_ = s.queue.Close()
	}
	s.to.Close()
}

// Last is the number of the last interval of an earlier run.
func (s *Sender) Last() uint64 { return s.last }

// Append has an interval sent; it waits for neither disk nor receiver.
func (s *Sender) Append(ended store.Ended) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records > 0 && s.records+ended.Len() > maxWaiting {
		if s.queue == nil {
			s.lose("queue_failed", ended.Len(), errors.New(s.failing))
		} else {
			s.lose("disk_slow", ended.Len(), errors.New("the disk of the queue is too slow"))
		}
		return
	}
	s.waiting = append(s.waiting, ended)
	s.records += ended.Len()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// lose counts records, and logs the first ones. It needs s.mu.
func (s *Sender) lose(reason string, records int, why error) {
	if records > 0 && s.lost[reason] == 0 {
		s.log.Error("records are lost", "reason", reason, "error", why)
	}
	s.lost[reason] += uint64(records)
}

// Run writes and sends until ctx ends; then it writes what waits, and sends what it can within flushTime.
func (s *Sender) Run(ctx context.Context) error {
	defer s.to.Close()
	if !s.opened(ctx) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lose("queue_failed", s.records, errors.New(s.failing))
		return nil
	}
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var sender sync.WaitGroup
	stopped := make(chan struct{})
	sender.Go(func() { s.send(sending, stopped) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.wake:
		}
		s.write()
	}
	s.write()
	close(stopped)
	defer time.AfterFunc(flushTime, stop).Stop()
	sender.Wait()
	return s.queue.Close()
}

// write writes what waits to the queue.
func (s *Sender) write() {
	for {
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.mu.Unlock()
			return
		}
		ended := s.waiting[0]
		s.waiting = append([]store.Ended(nil), s.waiting[1:]...)
		s.number++
		if s.cfg.Continues {
			s.number = ended.Sequence()
		}
		run, number := s.run, s.number
		s.mu.Unlock()
		b, err := s.to.Encode(&ended, run, number)
		full := s.queue.Counts().Full
		if err == nil {
			err = s.queue.Put(run, number, ended.Len(), b)
		}
		s.mu.Lock()
		s.records -= ended.Len()
		if err != nil {
			s.lose("queue_failed", ended.Len(), err)
		}
		if s.queue.Counts().Full > 0 && full == 0 {
			s.log.Error("the queue is full, its oldest intervals are lost: set its size to more, or have the receiver take them", "path", s.cfg.Path)
		}
		s.mu.Unlock()
	}
}

// Lost is how many records were lost in this run.
func (s *Sender) Lost() (n uint64) {
	for _, loss := range s.Status().Lost {
		n += loss.Count
	}
	return n
}

// reasons are in the order of a record's way.
var reasons = [...]string{"disk_slow", "queue_failed", "queue_full", "queue_damaged", "rejected", "too_large"}

// Status is the state of the exporter.
func (s *Sender) Status() obs.Exporter {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := obs.Exporter{Name: s.cfg.Name, Target: s.cfg.Target, Exported: s.sent, Retries: s.retries, LastError: s.failing, Queued: s.records, Lost: []obs.Loss{}}
	var c queue.Counts
	if s.queue != nil {
		c = s.queue.Counts()
		x.Queued += c.Records
		x.QueuedBytes, x.QueueBytes = c.Bytes, c.Limit
	}
	for _, reason := range reasons {
		n := s.lost[reason]
		switch reason {
		case "queue_full":
			n += c.Full
		case "queue_damaged":
			n += c.Damaged
		}
		if n > 0 {
			x.Lost = append(x.Lost, obs.Loss{Where: "queue", Reason: reason, Count: n})
		}
	}
	return x
}
