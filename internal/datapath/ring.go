package datapath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/waymark-net/waymark/internal/flow"
)

// ring receives the flows that left a full set between two drains.
type ring struct {
	reader  *ringbuf.Reader
	reading sync.Mutex // held by the one that reads, a stream as long as it runs
	record  ringbuf.Record
	flushed chan struct{} // has an element after a stream read everything, or ended
	ticks   *ticks
	clock   atomic.Pointer[clock]
}

func newRing(r *ringbuf.Reader, t *ticks) *ring {
	return &ring{reader: r, ticks: t, flushed: make(chan struct{}, 1)}
}

// stream emits evicted flows as they come, until ctx ends. Programs wake it
// when a quarter of the ring is taken; flush does when a drain wants the rest.
func (r *ring) stream(ctx context.Context, emit func(*flow.Delta)) error {
	r.reading.Lock()
	defer r.tell()
	defer r.reading.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = r.reader.Flush() })
	defer stop()
	for {
		switch err := r.next(emit); {
		case err == nil:
		case errors.Is(err, ringbuf.ErrFlushed):
			r.tell()
			if ctx.Err() != nil {
				return nil
			}
		case errors.Is(err, os.ErrClosed):
			return nil
		default:
			return fmt.Errorf("ring of evicted flows: %w", err)
		}
	}
}

func (r *ring) next(emit func(*flow.Delta)) error {
	if err := r.reader.ReadInto(&r.record); err != nil {
		return err
	}
	if len(r.record.RawSample) < int(unsafe.Sizeof(evictedFlow{})) {
		return fmt.Errorf("element of %d octets", len(r.record.RawSample))
	}
	e := (*evictedFlow)(unsafe.Pointer(&r.record.RawSample[0]))
	var d flow.Delta
	c := r.clock.Load()
	if c == nil {
		fresh, err := r.ticks.read()
		if err != nil {
			return err
		}
		c = &fresh
	}
	c.delta(&d, &e.Slot, &e.Extra)
	d.Evicted = true
	emit(&d)
	return nil
}

// tell wakes a flush that waits.
func (r *ring) tell() {
	select {
	case r.flushed <- struct{}{}:
	default:
	}
}

// flush returns when everything that was in the ring has been emitted: by the
// stream where one runs, else by this call.
func (r *ring) flush(emit func(*flow.Delta)) error {
	select {
	case <-r.flushed:
	default:
	}
	if r.reading.TryLock() {
		defer r.reading.Unlock()
		return r.readAll(emit)
	}
	if err := r.reader.Flush(); err != nil {
		return fmt.Errorf("ring of evicted flows: %w", err)
	}
	select {
	case <-r.flushed:
	case <-time.After(5 * time.Second):
		return errors.New("ring of evicted flows was not read within 5 s")
	}
	if r.reading.TryLock() { // the stream ended instead
		defer r.reading.Unlock()
		return r.readAll(emit)
	}
	return nil
}

func (r *ring) readAll(emit func(*flow.Delta)) error {
	r.reader.SetDeadline(time.Unix(1, 0))
	defer r.reader.SetDeadline(time.Time{})
	for {
		err := r.next(emit)
		switch {
		case err == nil, errors.Is(err, ringbuf.ErrFlushed): // what a stream that ended was told
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		default:
			return fmt.Errorf("ring of evicted flows: %w", err)
		}
	}
}

func (r *ring) close() { r.reader.Close() }
