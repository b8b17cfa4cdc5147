package agent

import (
	"cmp"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
)

// seen is what the probe saw in one direction of an interface.
type seen struct {
	flows     flow.Counts
	uncounted map[string]obs.Reason
}

// seenBy gathers what was seen since the agent started, by place.
func (a *Agent) seenBy() (map[place]seen, error) {
	out := map[place]seen{}
	for p, c := range a.totals.byPlace() {
		out[p] = seen{flows: c, uncounted: map[string]obs.Reason{}}
	}
	uncounted, err := a.probe.Uncounted()
	for _, u := range uncounted {
		p := place{u.Iface, u.Direction}
		s, ok := out[p]
		if !ok {
			s.uncounted = map[string]obs.Reason{}
		}
		r := s.uncounted[u.Reason]
		r.Reason = u.Reason
		r.Packets += u.Packets
		r.Frames += u.Frames
		r.Bytes += u.Bytes
		s.uncounted[u.Reason] = r
		out[p] = s
	}
	return out, err
}

// compare sets what was counted on every interface against its own counters.
func (h *hooks) compare(all map[place]seen) []obs.Interface {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []obs.Interface
	for i, at := range h.attached {
		if at.err != nil || at.blind {
			continue
		}
		for _, direction := range []flow.Direction{flow.Ingress, flow.Egress} {
			c := at.compare(direction, all[place{i, direction}])
			c.Iface, c.Netns, c.Direction = at.link.Name, at.link.Netns, direction.String()
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b obs.Interface) int {
		return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Iface, b.Iface), -cmp.Compare(a.Direction, b.Direction))
	})
	return out
}

// compare counts as the interface does: a network card counts packets on the
// wire, a virtual interface skbs, of which one may be a whole GSO burst.
func (at *attachment) compare(direction flow.Direction, s seen) obs.Interface {
	base := at.base[direction]
	c := obs.Interface{
		IfaceFrames: at.now.RxPackets - at.start.RxPackets,
		IfaceBytes:  at.now.RxBytes - at.start.RxBytes,
	}
	if direction == flow.Egress {
		c.IfaceFrames = at.now.TxPackets - at.start.TxPackets
		c.IfaceBytes = at.now.TxBytes - at.start.TxBytes
	}
	physical := at.link.Kind == "physical"
	c.Frames = s.flows.Frames - base.flows.Frames
	c.FrameBytes = s.flows.FrameBytes - base.flows.FrameBytes
	if physical {
		c.Frames = s.flows.Packets - base.flows.Packets
		c.FrameBytes = s.flows.WireBytes - base.flows.WireBytes
	}
	told := c.Frames
	for _, r := range s.uncounted {
		b := base.uncounted[r.Reason]
		r.Packets -= b.Packets
		r.Frames -= b.Frames
		r.Bytes -= b.Bytes
		if r.Packets == 0 {
			continue
		}
		if physical {
			told += r.Packets
		} else {
			told += r.Frames
		}
		c.Uncounted = append(c.Uncounted, r)
	}
	slices.SortFunc(c.Uncounted, func(a, b obs.Reason) int { return cmp.Compare(a.Reason, b.Reason) })
	c.Coverage = 1
	if c.IfaceFrames > 0 {
		c.Coverage = float64(told) / float64(c.IfaceFrames)
	}
	return c
}
