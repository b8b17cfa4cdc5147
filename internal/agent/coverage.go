package agent

import (
	"cmp"
	"errors"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/order"
)

// seen is what the probe saw in one direction of an interface.
type seen struct {
	flows     flow.Counts
	tags      uint64 // bytes, most, of VLAN tags outside the frames
	uncounted map[string]obs.Reason
}

// seenBy gathers what was seen since the agent started, by place.
func (a *Agent) seenBy() (map[place]seen, error) {
	out := map[place]seen{}
	for p, c := range a.totals.byPlace() {
		out[p] = seen{flows: c.Counts, tags: c.tags, uncounted: map[string]obs.Reason{}}
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

// forgetGone drops the totals of interfaces that are gone for so long that the
// registry has forgotten their names: where interfaces come and go, neither
// memory nor the metrics may grow with all there ever were.
func (a *Agent) forgetGone(all map[place]seen) error {
	var errs []error
	forgotten := map[flow.Iface]bool{}
	for p := range all {
		if _, known := a.registry.Link(p.iface); known || forgotten[p.iface] {
			continue
		}
		forgotten[p.iface] = true
		a.totals.forget(p.iface)
		errs = append(errs, a.probe.Forget(p.iface))
	}
	return errors.Join(errs...)
}

// compare sets what was counted on every interface against its own counters.
func (h *hooks) compare(all map[place]seen) []obs.Interface {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []obs.Interface
	for i, at := range h.attached {
		if at.err != nil {
			continue
		}
		for _, direction := range at.directions {
			h.noteBypass(at, direction, all[place{i, direction}])
			c := at.compare(direction, all[place{i, direction}])
			c.Iface, c.Netns, c.Direction = at.link.Name, at.link.Netns, direction.String()
			out = append(out, c)
		}
	}
	order.By(out, func(a, b obs.Interface) int {
		return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Iface, b.Iface), -cmp.Compare(a.Direction, b.Direction))
	})
	return out
}

const (
	etherHeader = 14
	vlanTag     = 4
	// Of a burst in no flow nobody knows what each segment repeats: at most this.
	headersUnread = 256
)

// compare sets what was seen in one direction against the counters of the interface.
func (at *attachment) compare(direction flow.Direction, s seen) obs.Interface {
	base := at.base[direction]
	packets, bytes := at.counted(direction)
	c := obs.Interface{
		Frames:     s.flows.Frames - base.flows.Frames,
		FrameBytes: s.flows.FrameBytes - base.flows.FrameBytes,
		Packets:    s.flows.Packets - base.flows.Packets,
		WireBytes:  s.flows.WireBytes - base.flows.WireBytes,

		IfacePacketsMin: packets.low, IfacePackets: packets.high,
		IfaceBytesMin: bytes.low, IfaceBytes: bytes.high,
	}
	ours := amounts{c.Frames, c.Packets, c.FrameBytes, c.WireBytes, s.tags - base.tags, 0}
	if at.link.Ethernet() {
		ours.link = etherHeader
	}
	for _, r := range s.uncounted {
		b := base.uncounted[r.Reason]
		r.Packets -= b.Packets
		r.Frames -= b.Frames
		r.Bytes -= b.Bytes
		if r.Packets == 0 {
			continue
		}
		c.Uncounted = append(c.Uncounted, r)
		ours.frames += r.Frames
		ours.packets += r.Packets
		ours.frameBytes += r.Bytes
		ours.wireBytes += r.Bytes
		ours.slack += (r.Packets - r.Frames) * headersUnread
	}
	order.By(c.Uncounted, func(a, b obs.Reason) int { return cmp.Compare(a.Reason, b.Reason) })
	c.Coverage = ours.coverage(packets, bytes)
	return c
}

// counted is what the interface counted while the probe was on it.
func (at *attachment) counted(direction flow.Direction) (packets, bytes span) {
	attach, drain := at.attaching, at.draining
	if direction == flow.Egress {
		return span{since(drain.low.TxPackets, attach.high.TxPackets), since(drain.high.TxPackets, attach.low.TxPackets)},
			span{since(drain.low.TxBytes, attach.high.TxBytes), since(drain.high.TxBytes, attach.low.TxBytes)}
	}
	return span{since(drain.low.RxPackets, attach.high.RxPackets), since(drain.high.RxPackets, attach.low.RxPackets)},
		span{since(drain.low.RxBytes, attach.high.RxBytes), since(drain.high.RxBytes, attach.low.RxBytes)}
}
