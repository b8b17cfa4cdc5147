package datapath

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
)

// ring receives the flows that left a full set between two drains.
type ring struct {
	reader *Ringbuf
	ticks  *ticks
	clock  atomic.Pointer[clock]
}

func openRing(m *ebpf.Map, wakeup int, t *ticks) (*ring, error) {
	reader, err := OpenRingbuf(m, wakeup)
	if err != nil {
		return nil, fmt.Errorf("ring of evicted flows: %w", err)
	}
	return &ring{reader: reader, ticks: t}, nil
}

// stream emits evicted flows as they come, until ctx ends. Programs wake it
// when a part of the ring is taken, which it reports; a drain takes the rest.
func (r *ring) stream(ctx context.Context, woken func(), emit func(*flow.Delta)) error {
	for {
		switch more, err := r.reader.Wait(ctx); {
		case err != nil:
			return fmt.Errorf("ring of evicted flows: %w", err)
		case !more:
			return nil
		}
		woken()
		if err := r.flush(emit); err != nil {
			return err
		}
	}
}

// flush emits everything that is in the ring.
func (r *ring) flush(emit func(*flow.Delta)) error {
	c := r.clock.Load()
	if c == nil {
		fresh, err := r.ticks.read()
		if err != nil {
			return err
		}
		c = &fresh
	}
	var d flow.Delta
	err := r.reader.Read(func(raw []byte) error {
		if len(raw) < int(unsafe.Sizeof(evictedFlow{})) {
			return fmt.Errorf("element of %d bytes", len(raw))
		}
		e := (*evictedFlow)(unsafe.Pointer(&raw[0]))
		c.emit(&d, &e.Slot, &e.Extra, true, emit)
		return nil
	})
	if err != nil {
		return fmt.Errorf("ring of evicted flows: %w", err)
	}
	return nil
}

func (r *ring) close() { r.reader.Close() }
