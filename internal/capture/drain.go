package capture

import (
	"maps"
	"slices"
	"time"
	"unsafe"

	"github.com/waymark-net/waymark/internal/flow"
)

// Stats tells of the flow table; counters run since New.
type Stats struct {
	MaxEntries   uint64 // flows that one interval may have
	Entries      uint64 // of these, in use at the last drain
	Memory       uint64 // bytes: flow tables and rings
	Unattributed uint64 // packets that found the table full

	Drain time.Duration // the last one
}

// Drain counts all that was received up to now, and emits and forgets it.
// Implements flow.Probe.
func (c *Capture) Drain(emit func(*flow.Delta)) error {
	c.draining.Lock()
	defer c.draining.Unlock()
	start := time.Now()

	c.mu.Lock()
	err := c.settle(slices.Collect(maps.Values(c.rings)), 10*retireAfter)
	full := c.meter.table
	c.meter.table, c.spare = c.spare, full
	c.stats.Entries = uint64(full.used)
	for _, d := range full.rest {
		c.stats.Unattributed += d.Packets
	}
	c.mu.Unlock()

	full.drain(emit)

	c.mu.Lock()
	c.stats.Drain = time.Since(start)
	c.mu.Unlock()
	return err
}

// Stats reads the counters of the flow table.
func (c *Capture) Stats() Stats {
	c.draining.Lock() // the spare table is not locked else
	defer c.draining.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.MaxEntries = uint64(c.cfg.MaxEntries)
	s.Memory = c.spare.size() + c.meter.table.size()
	for _, r := range c.rings {
		s.Memory += uint64(len(r.memory))
	}
	return s
}

// size is about the memory that the table holds, in bytes: its elements, and
// an index with a key and a number for each.
func (t *table) size() uint64 {
	flows := uint64(len(t.chunks) * chunkLen)
	return flows * uint64(unsafe.Sizeof(flow.Delta{})+unsafe.Sizeof(flow.Key{})+8)
}

// Uncounted returns running totals of packets in no flow. Implements flow.Probe.
func (c *Capture) Uncounted() ([]flow.Uncounted, error) {
	return c.reasons(counted+1, firstCounted)
}

// Incomplete returns running totals of packets that are in a flow of which
// something could not be learned (ports of a fragment, a handshake's time).
func (c *Capture) Incomplete() ([]flow.Uncounted, error) {
	return c.reasons(firstCounted, reasons)
}

// Forget drops the running totals of an interface that is gone.
func (c *Capture) Forget(iface flow.Iface) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, direction := range []flow.Direction{flow.Ingress, flow.Egress} {
		delete(c.meter.counts, place{iface, direction})
	}
	return nil
}

func (c *Capture) reasons(from, to reason) ([]flow.Uncounted, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.rings {
		if err := r.statistics(c.meter); err != nil {
			return nil, err
		}
	}
	return c.meter.uncounted(from, to), nil
}

// uncounted lists the totals of the reasons in [from, to).
func (m *meter) uncounted(from, to reason) []flow.Uncounted {
	var out []flow.Uncounted
	for at, amounts := range m.counts {
		for why := from; why < to; why++ {
			if a := amounts[why]; a.frames > 0 {
				out = append(out, flow.Uncounted{
					Iface: at.iface, Direction: at.direction, Reason: why.String(),
					Packets: a.packets, Frames: a.frames, Bytes: a.bytes,
				})
			}
		}
	}
	return out
}
