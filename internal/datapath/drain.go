package datapath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/order"
)

// Stats tells of the flow table; counters run since Load.
type Stats struct {
	MaxEntries   uint64 // slots of one epoch
	Entries      uint64 // of these, in use at the last drain
	Memory       uint64 // bytes
	Evicted      uint64 // flows that went through the ring
	Unattributed uint64 // packets that found the ring full
	CountsFull   uint64 // packets that did not fit into the counts by reason

	Drain time.Duration // the last one
	Grace time.Duration // its part that waited for programs to end
}

// ErrClosed is what a drain after Close gets.
var ErrClosed = errors.New("the probe is closed")

// Drain turns the epoch, waits until no program uses the old one, and has every
// stage emit what that counted. Implements flow.Probe.
func (d *Datapath) Drain(emit func(*flow.Delta)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		return ErrClosed
	}
	start := time.Now()
	errs := []error{d.claim()}
	old := d.table.turn()
	waited := time.Now()
	if err := d.grace.Wait(); err != nil {
		return err
	}
	d.stats.Grace = time.Since(waited)
	at, err := Now()
	if err != nil {
		return err
	}
	for _, s := range d.stages {
		if s.Drain == nil {
			continue
		}
		if err := s.Drain(Epoch{Number: old, At: at}, emit); err != nil {
			errs = append(errs, err)
		}
	}
	d.stats.Drain = time.Since(start)
	return errors.Join(errs...)
}

// Forget has every stage drop the running totals of an interface that is gone, and
// known to be drained: else interfaces that come and go would fill the maps.
func (d *Datapath) Forget(iface flow.Iface) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		return ErrClosed
	}
	var errs []error
	for _, s := range d.stages {
		if s.Forget != nil {
			errs = append(errs, s.Forget(iface))
		}
	}
	return errors.Join(errs...)
}

// Stream emits flows as they leave full sets. Implements flow.Streamer.
func (d *Datapath) Stream(ctx context.Context, emit func(*flow.Delta)) error {
	d.mu.Lock()
	table, open := d.table, d.open
	d.mu.Unlock()
	if !open {
		return ErrClosed
	}
	// To grow takes a grace period, during which the ring is read.
	woken := make(chan struct{}, 1)
	var growing sync.WaitGroup
	growing.Go(func() {
		for range woken {
			table.grow()
		}
	})
	defer growing.Wait()
	defer close(woken)
	return d.ring.stream(ctx, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}, emit)
}

// Stats reads the counters of the flow table.
func (d *Datapath) Stats() (Stats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		return Stats{}, ErrClosed
	}
	s := d.stats
	s.MaxEntries = uint64(d.cpus) * uint64(d.shape.sets) * uint64(ways)
	s.Memory = d.table.size()
	sum, err := Total[tableStats](d.perCPU, uint32(0))
	if err != nil {
		return Stats{}, fmt.Errorf("reading the flow table's counters: %w", err)
	}
	s.Evicted, s.Unattributed, s.CountsFull = sum.Evicted, sum.Unattributed, sum.CountsFull
	return s, nil
}

// Programs reads the kernel's account of the loaded programs. Run time is zero
// unless the sysctl kernel.bpf_stats_enabled is 1.
func (d *Datapath) Programs() ([]obs.Program, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []obs.Program
	for _, prog := range d.loaded {
		info, err := prog.Info()
		if err != nil {
			return nil, fmt.Errorf("reading program info: %w", err)
		}
		stats, err := prog.Stats()
		if err != nil {
			return nil, fmt.Errorf("reading program statistics: %w", err)
		}
		id, _ := info.ID()
		out = append(out, obs.Program{Name: info.Name, ID: uint32(id), RunCount: stats.RunCount, RunTime: stats.Runtime})
	}
	order.By(out, func(a, b obs.Program) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}
