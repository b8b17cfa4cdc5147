package agent

import (
	"cmp"
	"maps"
	"sync"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/order"
)

// totals sums everything that was counted in flows, by interface, direction and
// protocol, since the agent started.
type totals struct {
	mu   sync.Mutex
	sum  map[totalKey]*sums
	last totalKey // of the delta before, and mostly of the next
	into *sums    // its sum; nil: none yet
}

// sums are counts, and how many bytes of tags may be among WireBytes.
type sums struct {
	flow.Counts
	tags uint64
}

type totalKey struct {
	place
	protocol string
}

// place is one direction of an interface.
type place struct {
	iface     flow.Iface
	direction flow.Direction
}

func newTotals() *totals { return &totals{sum: map[totalKey]*sums{}} }

func (t *totals) add(d *flow.Delta) {
	k := totalKey{place{d.Iface, d.Direction}, flow.ProtoClass(d.Proto)}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.into
	if s == nil || k != t.last {
		if s = t.sum[k]; s == nil {
			s = &sums{}
			t.sum[k] = s
		}
		t.last, t.into = k, s
	}
	s.Counters.Add(&d.Counters)
	s.Frames += d.Frames
	s.FrameBytes += d.FrameBytes
	switch {
	case d.Packets == d.Frames: // no bursts: nothing else is outside the frames
		s.tags += d.WireBytes - d.FrameBytes
	case d.VLAN != 0:
		s.tags += d.Packets * vlanTag
	}
}

// forget drops what was counted on an interface.
func (t *totals) forget(i flow.Iface) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.sum, func(k totalKey, _ *sums) bool { return k.iface == i })
	t.into = nil
}

// byPlace sums over protocols.
func (t *totals) byPlace() map[place]sums {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[place]sums{}
	for k, s := range t.sum {
		c := out[k.place]
		c.Counters.Add(&s.Counters)
		c.Frames += s.Frames
		c.FrameBytes += s.FrameBytes
		c.tags += s.tags
		out[k.place] = c
	}
	return out
}

// list is the totals by name, in a fixed order. Interfaces that had the same name
// one after the other are one.
func (t *totals) list(name func(flow.Iface) (name, netns string)) []obs.Total {
	t.mu.Lock()
	defer t.mu.Unlock()
	named := make(map[obs.Total]flow.Counters, len(t.sum))
	for k, s := range t.sum {
		iface, netns := name(k.iface)
		key := obs.Total{Iface: iface, Netns: netns, Direction: k.direction.String(), Protocol: k.protocol}
		c := named[key]
		c.Add(&s.Counters)
		named[key] = c
	}
	out := make([]obs.Total, 0, len(named))
	for total, c := range named {
		total.Counters = c
		out = append(out, total)
	}
	order.By(out, func(a, b obs.Total) int {
		return cmp.Or(
			cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Iface, b.Iface),
			cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Protocol, b.Protocol),
		)
	})
	return out
}
