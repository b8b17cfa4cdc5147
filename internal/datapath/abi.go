package datapath

import (
	"encoding/binary"
	"math/bits"
	"time"
	"unsafe"

	"github.com/waymark-net/waymark/internal/flow"
)

// Short names for what the generator makes of bpf/abi.h.
type (
	slot            = tcFlowSlot
	extra           = tcFlowExtra
	slotSet         = tcFlowSet
	extraSet        = tcFlowExtraSet
	evictedFlow     = tcFlowEvicted
	waitingPacket   = tcPacket
	packetBatch     = tcFlowBatch
	countKey        = tcCountKey
	countValue      = tcCountValue
	countCache      = tcCountCache
	countSlot       = tcCountSlot
	unattributedKey = tcUnattributedKey
	unattributedSum = tcUnattributedSum
	tableStats      = tcTableStats
)

const (
	protoTCP = 6

	ways    = len(slotSet{}.Way)
	setSize = int(unsafe.Sizeof(slotSet{}) + unsafe.Sizeof(extraSet{}))
)

// freeMeta is flow_slot.meta of a slot that was freed: flow_hit() in bpf/flow/flow.h
// compares without asking whether a slot is free.
const freeMeta = uint32(tcL2L2FREE) << tcMetaMETA_L2SHIFT

// meta is flow_slot.meta.
type meta uint32

func (m meta) direction() flow.Direction {
	return flow.Direction(m >> tcMetaMETA_DIRECTION_SHIFT & 1)
}
func (m meta) ipv6() bool          { return m>>tcMetaMETA_IPV6SHIFT&1 == 1 }
func (m meta) l2() tcL2            { return tcL2(m >> tcMetaMETA_L2SHIFT & 7) }
func (m meta) tunnel() flow.Tunnel { return flow.Tunnel(m >> tcMetaMETA_TUNNEL_SHIFT & 7) }

func (m meta) vlan() uint16 {
	if m.forwarded() && !m.tagged() {
		return 0
	}
	return uint16(m >> tcMetaMETA_VLAN_SHIFT & 0xfff)
}

func (m meta) innerVLAN() uint16 {
	if m.forwarded() {
		return 0
	}
	return uint16(m >> tcMetaMETA_INNER_VLAN_SHIFT & 0xfff)
}

// VLANs are the tags in flow_slot.meta.
func VLANs(flowMeta uint32) (vlan, inner uint16) {
	return meta(flowMeta).vlan(), meta(flowMeta).innerVLAN()
}

// FlowKey is the key of a flow from the fields of flow_slot, which other maps have, too.
func FlowKey(src, dst [16]byte, sport, dport uint16, iface, flowMeta uint32, proto uint8) flow.Key {
	m := meta(flowMeta)
	return flow.Key{
		Src: src, Dst: dst, SrcPort: HostPort(sport), DstPort: HostPort(dport), Iface: flow.Iface(iface), VLAN: m.vlan(), InnerVLAN: m.innerVLAN(),
		Proto: proto, Direction: m.direction(), Tunnel: m.tunnel(), IPv6: m.ipv6(),
	}
}

// linkLen is the length of the link header on the wire, in bytes.
func (m meta) linkLen() uint64 {
	switch m.l2() {
	case tcL2L2NONE:
		return 0
	case tcL2L2TAG, tcL2L2TAG_ACCEL:
		return 18
	case tcL2L2TAG2, tcL2L2TAG2ACCEL:
		return 22
	case tcL2L2FORWARDED:
		if m.tagged() {
			return 18
		}
	}
	return 14
}

// accelLen is the part of linkLen that is not in the frame's memory.
func (m meta) accelLen() uint64 {
	if l2 := m.l2(); l2 == tcL2L2TAG_ACCEL || l2 == tcL2L2TAG2ACCEL {
		return 4
	}
	return 0
}

// OnLink adds to the delta of a flow what its packets were on the link, from the fields of flow_slot and flow_extra.
func OnLink(d *flow.Delta, flowMeta uint32, overhead, gsoPackets, gsoBytes uint64) {
	m := meta(flowMeta)
	d.WireBytes = d.Bytes + d.Packets*m.linkLen() + overhead
	d.Frames = d.Packets - gsoPackets
	d.FrameBytes = d.WireBytes - d.Packets*m.accelLen() - gsoBytes
}

// HostPort turns a port that was read as it lies in memory into its value.
func HostPort(p uint16) uint16 {
	if nativeIsLittle {
		return bits.ReverseBytes16(p)
	}
	return p
}

var nativeIsLittle = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// delta fills d from a slot and its extra; field by field, since a literal would
// be made elsewhere and copied.
func (c *clock) delta(d *flow.Delta, s *slot, x *extra) {
	m := meta(s.Meta)
	packets := uint64(s.Packets)
	wire := uint64(s.Bytes) + packets*m.linkLen() + uint64(x.Overhead)

	d.Src, d.Dst = s.Saddr, s.Daddr
	d.SrcPort, d.DstPort = HostPort(s.Sport), HostPort(s.Dport)
	d.Iface, d.VLAN, d.InnerVLAN = flow.Iface(s.Iface), m.vlan(), m.innerVLAN()
	d.Proto, d.Direction, d.Tunnel, d.IPv6 = s.Proto, m.direction(), m.tunnel(), m.ipv6()

	d.Packets, d.Bytes, d.PayloadBytes, d.WireBytes = packets, uint64(s.Bytes), uint64(s.Payload), wire
	d.Fragments, d.CEPackets = uint64(x.Fragments), uint64(x.CePackets)
	d.Frames = packets - uint64(x.GsoPackets)
	d.FrameBytes = wire - packets*m.accelLen() - uint64(x.GsoBytes)
	d.First, d.FirstSpread, d.Last = c.wall(x.First), c.spread(), c.wall(s.Last)
	d.FlowLabel, d.VNI, d.Other, d.Forwarded = x.FlowLabel, x.Vni, 0, 0
	if m.forwarded() {
		d.Other, d.Forwarded = flow.Iface(m.other(s.Iface)), packets
		if m.tagged() {
			d.VNI, d.Other = 0, flow.Iface(x.Vni)
		}
	}
	d.TCPFlags = uint16(x.TcpFlagsHigh)<<8 | uint16(s.TcpFlags)
	d.TOS, d.TTLMin, d.TTLMax = s.Tos, x.TtlMin, x.TtlMax
	d.Opening = flow.Opening(x.Opening)
	d.RTT = flow.RTT{}
	switch {
	case s.Proto == protoTCP:
		d.RTT.Responder, d.RTT.Initiator = time.Duration(x.RttResponder), time.Duration(x.RttInitiator)
	case x.RttResponder != 0: // first_ns of the union
		d.First, d.FirstSpread = c.exact(x.First, x.RttResponder), 0
		d.Last = max(d.Last, d.First)
	}
	d.PDM, d.IOAM = nil, nil
	d.Unattributed, d.Evicted = false, false
}

// extraOf is what flow_create() makes of a flow's first packet (bpf/flow/flow.h).
func extraOf(p *waitingPacket) extra {
	x := extra{
		Overhead: uint64(p.Overhead), First: p.Id.Last, FlowLabel: p.FlowLabel,
		GsoPackets: p.GsoPackets, GsoBytes: p.GsoBytes, Vni: p.Vni,
		RttResponder: p.RttResponder, RttInitiator: p.RttInitiator,
		TtlMin: p.Id.Ttl, TtlMax: p.Id.Ttl, TcpFlagsHigh: p.TcpFlagsHigh, Opening: p.Opening,
	}
	if p.Id.Tos&3 == 3 {
		x.CePackets = p.Id.Packets
	}
	if p.Fragment != 0 {
		x.Fragments = p.Id.Packets
	}
	return x
}
