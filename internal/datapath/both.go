package datapath

import "github.com/waymark-net/waymark/internal/flow"

// indexMask is the part of flow_slot.iface that is the index of the interface.
const indexMask = 1<<tcMetaIFACE_NETNS_SHIFT - 1

// forwarded reports that XDP has forwarded the packets of a slot.
func (m meta) forwarded() bool { return m.l2() == tcL2L2FORWARDED }

// other is the interface on the other side of forwarded packets.
func (m meta) other(iface uint32) uint32 {
	return iface&^indexMask | uint32(m>>tcMetaMETA_OTHER_SHIFT)&indexMask
}

// both reports that a slot is that of two flows (bpf/forward/account.h).
func (m meta) both() bool { return m.forwarded() && m>>tcMetaMETA_BOTH_SHIFT&1 == 1 }

// tagged reports that the forwarded frames of a slot have a tag.
func (m meta) tagged() bool {
	return m.forwarded() && !m.both() && m>>tcMetaMETA_TAGGED_SHIFT&1 == 1
}

// emit emits the flow of a slot, or both. evicted: the slot was handed over before the drain.
func (c *clock) emit(d *flow.Delta, s *slot, x *extra, evicted bool, emit func(*flow.Delta)) {
	c.delta(d, s, x)
	d.Evicted = evicted
	emit(d)
	if meta(s.Meta).both() {
		leaving, more := leaves(s, x)
		c.delta(d, &leaving, &more)
		d.Evicted = evicted
		emit(d)
	}
}

// leaves is the flow at the egress: what forward_turn() makes of its packets (bpf/forward/account.h).
func leaves(s *slot, x *extra) (slot, extra) {
	out, more, m := *s, *x, meta(s.Meta)
	out.Iface = m.other(s.Iface)
	out.Meta = uint32(m)&(1<<tcMetaMETA_OTHER_SHIFT-1) | uint32(flow.Egress)<<tcMetaMETA_DIRECTION_SHIFT | s.Iface&indexMask<<tcMetaMETA_OTHER_SHIFT
	more.Overhead = 0
	if aged := uint8(m >> tcMetaMETA_AGED_SHIFT & 1); aged != 0 {
		out.Ttl, more.TtlMin, more.TtlMax = s.Ttl-aged, x.TtlMin-aged, x.TtlMax-aged
	}
	return out, more
}
