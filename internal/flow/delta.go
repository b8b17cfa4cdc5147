package flow

import (
	"context"
	"time"
)

// Key is the identity of a flow, in the form that probes count by. It is
// comparable and has no pointers, so that tables of a million keys cost the
// garbage collector nothing.
type Key struct {
	Src, Dst         [16]byte // IPv4 as ::ffff:a.b.c.d
	SrcPort, DstPort uint16   // host byte order; ICMP: echo identifier and type<<8|code
	Iface            Iface
	VLAN, InnerVLAN  uint16
	Proto            uint8
	Direction        Direction
	Tunnel           Tunnel
	IPv6             bool
}

// Reverse is the key of the opposite half of the conversation as seen on the
// same interface: the other direction with source and destination swapped. For
// ICMP echo the type is swapped between request and reply.
func (k Key) Reverse() Key {
	r := k
	r.Src, r.Dst = k.Dst, k.Src
	r.Direction = k.Direction ^ 1
	switch {
	case k.Proto == protoICMP && k.DstPort>>8 == 8:
		r.DstPort = 0
	case k.Proto == protoICMP && k.DstPort>>8 == 0:
		r.DstPort = 8 << 8
	case k.Proto == protoICMPv6 && k.DstPort>>8 == 128:
		r.DstPort = 129 << 8
	case k.Proto == protoICMPv6 && k.DstPort>>8 == 129:
		r.DstPort = 128 << 8
	case k.Proto == protoICMP || k.Proto == protoICMPv6:
		// No other message has a reverse; the key of none equals this.
		r.DstPort = ^uint16(0)
	default:
		r.SrcPort, r.DstPort = k.DstPort, k.SrcPort
	}
	return r
}

const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// Iface is the number of a network namespace and an interface index in it, as
// flow_slot.iface in bpf/abi.h: namespace << 22 | ifindex. Namespace 0 is the
// agent's own.
type Iface uint32

// NetnsShift is where the number of the namespace begins.
const NetnsShift = 22

// NewIface packs a namespace number (below 1024) and an ifindex (below 2^22).
func NewIface(netns, ifindex uint32) Iface { return Iface(netns<<NetnsShift | ifindex) }

// IfIndex is the interface index inside its namespace.
func (i Iface) IfIndex() uint32 { return uint32(i) & (1<<NetnsShift - 1) }

// Netns is the number of the namespace.
func (i Iface) Netns() uint32 { return uint32(i) >> NetnsShift }

// Counts is what was counted of a flow; fields as in Record, times in
// nanoseconds since the Unix epoch.
type Counts struct {
	Counters

	// Frames and FrameBytes count as a virtual interface's own counters do:
	// one for a GSO burst, without accelerated VLAN tags. For coverage only.
	Frames, FrameBytes uint64

	First, Last    int64
	FlowLabel, VNI uint32
	TCPFlags       uint16
	TOS            uint8
	TTLMin, TTLMax uint8
	FirstSpread    uint8   // the first packet came up to so many ms after First; 0: exactly then
	Opening        Opening // of TCP
	RTT            RTT
	Other          Iface // where Forwarded packets left, or came from; 0: none
	Drop           *Drop // nil: no packet was dropped
	PDM            *PDM  // nil: the flow is not marked
	IOAM           *IOAM // nil: its packets bring no IOAM options that end here
}

// Add adds what was counted of the same flow at another time or processor. A
// delta without packets may still bring delays.
func (c *Counts) Add(d *Counts) {
	if c.Packets == 0 && c.Last == 0 && !c.reported() && !d.reported() {
		*c = *d // which most flows of an interval come to
		return
	}
	if d.Packets > 0 || c.Packets == 0 && c.First == 0 {
		c.addTimes(d)
	}
	c.Counters.Add(&d.Counters)
	c.Frames += d.Frames
	c.FrameBytes += d.FrameBytes
	if d.RTT.Responder != 0 {
		c.RTT.Responder = d.RTT.Responder
	}
	if d.RTT.Initiator != 0 {
		c.RTT.Initiator = d.RTT.Initiator
	}
	if c.Other == 0 {
		c.Other = d.Other
	}
	c.Drop = c.Drop.and(d.Drop)
	c.addPDM(d.PDM)
	c.addIOAM(d.IOAM)
}

// reported says that options in its packets reported something of the flow.
func (c *Counts) reported() bool { return c.PDM != nil || c.IOAM != nil }

// forgetReported drops what they did.
func (c *Counts) forgetReported() { c.PDM, c.IOAM = nil, nil }

// ownReported takes copies of what is the caller's memory.
func (c *Counts) ownReported() {
	if c.PDM != nil {
		c.PDM = c.PDM.Clone()
	}
	if c.IOAM != nil {
		c.IOAM = c.IOAM.Clone()
	}
}

// addTimes adds what only packets have, and when there are none yet, when the
// delays were reported.
func (c *Counts) addTimes(d *Counts) {
	if c.Packets == 0 || d.isBefore(c) { // what is of the first packet
		c.First, c.FirstSpread, c.TOS, c.FlowLabel, c.VNI = d.First, d.FirstSpread, d.TOS, d.FlowLabel, d.VNI
	}
	if c.Packets == 0 {
		c.TTLMin = d.TTLMin
	}
	c.Last = max(c.Last, d.Last)
	c.TTLMin, c.TTLMax = min(c.TTLMin, d.TTLMin), max(c.TTLMax, d.TTLMax)
	c.TCPFlags |= d.TCPFlags
	c.Opening |= d.Opening
}

// isBefore reports whether d has the first packet of a flow. Exact times are those
// of the first packet that a probe saw: another packet in the same tick is later.
func (c *Counts) isBefore(d *Counts) bool {
	switch {
	case c.FirstSpread == 0 && d.FirstSpread != 0:
		return c.First < d.lastFirst()
	case c.FirstSpread != 0 && d.FirstSpread == 0:
		return c.lastFirst() <= d.First
	}
	return c.First < d.First
}

// lastFirst is the latest that the first packet can have come.
func (c *Counts) lastFirst() int64 {
	return c.First + int64(c.FirstSpread)*int64(time.Millisecond)
}

// addPDM takes a copy the first time: the other's may be used again.
func (c *Counts) addPDM(p *PDM) {
	switch {
	case p == nil:
	case c.PDM == nil:
		c.PDM = p.Clone()
	default:
		c.PDM.Add(p)
	}
}

// addIOAM likewise.
func (c *Counts) addIOAM(p *IOAM) {
	switch {
	case p == nil:
	case c.IOAM == nil:
		c.IOAM = p.Clone()
	default:
		c.IOAM.Add(p)
	}
}

// Delta is one flow's counts since the probe last reported it. The same key may
// come several times in one drain (from several CPUs, or from an eviction).
type Delta struct {
	Key
	Counts
	Unattributed bool // only Iface, Direction, IPv6 and Proto of the key are known
	Evicted      bool // left the probe's table for want of room
}

// Uncounted is a running total of packets on an interface that belong to no
// flow, by reason (ARP, malformed, unknown EtherType, …).
type Uncounted struct {
	Iface     Iface
	Direction Direction
	Reason    string // name from enum reason in bpf/abi.h, lower case
	Packets   uint64 // segments
	Frames    uint64 // as a virtual interface counts: one for a GSO burst
	Bytes     uint64 // of the frames
}

// Probe counts packets into flows. Both probes, eBPF (datapath) and AF_PACKET
// (capture), are Probes; everything behind them is the same.
type Probe interface {
	// Drain ends the interval and calls emit for everything counted in it. The
	// Delta is reused between calls.
	Drain(emit func(*Delta)) error
	// Uncounted returns running totals since the probe started.
	Uncounted() ([]Uncounted, error)
}

// Streamer is a Probe that also has deltas which can't wait for the next drain,
// because the memory that holds them is small. Stream emits them until ctx ends;
// emit must be safe to call at the same time as the one given to Drain.
type Streamer interface {
	Stream(ctx context.Context, emit func(*Delta)) error
}

// Clock tells the time; tests inject their own.
type Clock func() time.Time
