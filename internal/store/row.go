package store

import (
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// row is a flow.Record without pointers, in half the space: a history of a
// hundred thousand costs the garbage collector nothing. What options reported of
// it stands apart.
type row struct {
	flow.Counters
	src, dst                   [16]byte
	first, last                int64 // ns since the Unix epoch
	rttResponder, rttInitiator int64
	link, vni, flowLabel       uint32
	reported                   uint32 // where it is in interval.reported; 0: nowhere
	drop                       uint32 // number in interval.drops, from 1; 0: nothing was dropped
	other                      uint32 // number of the interface on the other side, from 1; 0: not known
	sport, dport               uint16
	vlan, innerVLAN, tcpFlags  uint16
	proto, tos, ttlMin, ttlMax uint8
	direction                  flow.Direction
	tunnel                     flow.Tunnel
	endReason                  flow.EndReason
	initiator                  flow.Initiator
	initiatorBy                flow.Evidence
	family                     uint8
	unattributed               bool
}

// link is an interface; rows name it by its number in their interval.
type link struct {
	iface, netns string
	ifindex      uint32
}

// set takes all of a record but what options reported.
func (w *row) set(r *flow.Record, number uint32) {
	*w = row{
		first: flow.Nanos(r.First), last: flow.Nanos(r.Last),
		Counters:     r.Counters,
		rttResponder: int64(r.RTT.Responder), rttInitiator: int64(r.RTT.Initiator),
		link: number, vni: r.VNI, flowLabel: r.FlowLabel,
		sport: r.SrcPort, dport: r.DstPort, vlan: r.VLAN, innerVLAN: r.InnerVLAN, tcpFlags: r.TCPFlags,
		proto: r.Proto, tos: r.TOS, ttlMin: r.TTLMin, ttlMax: r.TTLMax,
		direction: r.Direction, tunnel: r.Tunnel, endReason: r.EndReason,
		initiator: r.Initiator, initiatorBy: r.InitiatorBy,
		family: r.Family, unattributed: r.Unattributed,
	}
	if r.Src.IsValid() {
		w.src, w.dst = r.Src.As16(), r.Dst.As16()
	}
}

// record gives the record back. What options reported of it is written to memory.
func (w *row) record(iv *interval, r *flow.Record, memory *reports) {
	w.own(r)
	w.place(iv, r, memory)
}

// own makes of the record what does not stand apart from the row.
func (w *row) own(r *flow.Record) {
	*r = flow.Record{
		Direction: w.direction, Family: w.family, Proto: w.proto, SrcPort: w.sport, DstPort: w.dport,
		VLAN: w.vlan, InnerVLAN: w.innerVLAN, Tunnel: w.tunnel, VNI: w.vni,
		TOS: w.tos, TCPFlags: w.tcpFlags, FlowLabel: w.flowLabel, TTLMin: w.ttlMin, TTLMax: w.ttlMax,
		Counters: w.Counters,
		First:    flow.FromNanos(w.first), Last: flow.FromNanos(w.last),
		EndReason: w.endReason, Unattributed: w.unattributed,
		Initiator: w.initiator, InitiatorBy: w.initiatorBy,
		RTT: flow.RTT{Responder: time.Duration(w.rttResponder), Initiator: time.Duration(w.rttInitiator)},
	}
	if !w.unattributed {
		r.Src, r.Dst = address(w.src, w.family), address(w.dst, w.family)
	}
}

// place adds what is kept of the interval: the interfaces, what dropped packets, and what options reported.
func (w *row) place(iv *interval, r *flow.Record, memory *reports) {
	l := &iv.links[w.link]
	r.Iface, r.Netns, r.IfIndex = l.iface, l.netns, l.ifindex
	if w.other != 0 {
		o := &iv.links[w.other-1]
		r.Other, r.OtherIfIndex = o.iface, o.ifindex
	}
	if w.drop != 0 {
		r.Drop = iv.drops[w.drop-1]
	}
	if w.reported != 0 {
		r.PDM, r.IOAM = iv.reported.get(w.reported, memory)
	}
}

func address(b [16]byte, family uint8) netip.Addr {
	a := netip.AddrFrom16(b)
	if family == 4 {
		a = a.Unmap()
	}
	return a
}
