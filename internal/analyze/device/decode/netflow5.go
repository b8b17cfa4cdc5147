package decode

import (
	"fmt"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// Sizes of NetFlow 5.
const (
	head5   = 24
	record5 = 48
)

func peek5(b []byte) (h Header, err error) {
	if len(b) < head5 {
		return h, short(NetFlow5, len(b), head5)
	}
	count := int(be.Uint16(b[2:]))
	if count == 0 || len(b) < head5+count*record5 {
		return h, fmt.Errorf("netflow5: %d records in a datagram of %d bytes", count, len(b))
	}
	return Header{
		Protocol: NetFlow5, Domain: uint32(be.Uint16(b[20:])), Sequence: be.Uint32(b[16:]), count: count,
		Exported: time.Unix(int64(be.Uint32(b[8:])), int64(be.Uint32(b[12:]))), Uptime: time.Duration(be.Uint32(b[4:])) * time.Millisecond, HasUptime: true,
		body: b[22:],
	}, nil
}

// netflow5 reads records, whose form is fixed.
func (s *Session) netflow5(h *Header, out Output) {
	rate := s.rate(float64(be.Uint16(h.body) & 0x3fff)) // two bits are the mode
	out.Sampled(rate)
	for i := range h.count {
		b := h.body[head5-22+i*record5:]
		r := &s.record
		*r = record{forward: half{counted: true}}
		r.forward.Packets, r.forward.Bytes = uint64(be.Uint32(b[16:])), uint64(be.Uint32(b[20:]))
		r.forward.first, r.forward.last = h.uptimeTime(be.Uint32(b[24:])), h.uptimeTime(be.Uint32(b[28:]))
		r.forward.flags, r.forward.tos, r.key.Proto = uint16(b[37]), b[39], b[38]
		r.key.Src, r.key.Dst = v4(b), v4(b[4:])
		r.hasAddresses = true
		r.key.SrcPort, r.key.DstPort = be.Uint16(b[32:]), be.Uint16(b[34:])
		r.in, r.out = uint32(be.Uint16(b[12:])), uint32(be.Uint16(b[14:]))
		s.emit(r, h, rate, out)
	}
}

// v4 is the address that b begins with, in the form of a key.
func v4(b []byte) (a [16]byte) {
	a[10], a[11] = 0xff, 0xff
	copy(a[12:], b[:4])
	return a
}

// uptimeTime is a time that a device gives in milliseconds since its start, of which 32 bits are there.
func (h *Header) uptimeTime(ms uint32) moment {
	up := uint32(h.Uptime / time.Millisecond)
	back := int32(up - ms) // flows are in the past; a clock that is read twice may be a little ahead
	return moment{h.Exported.Add(-time.Duration(back) * time.Millisecond).UnixNano(), 1}
}

// moment is a time in ns since the epoch, and how many ms later it may have been.
type moment struct {
	at     int64
	spread uint8
}

// half is what was counted in one direction.
type half struct {
	flow.Counters
	counted        bool // it has packets or bytes
	first, last    moment
	flags          uint16
	tos            uint8
	ttlMin, ttlMax uint8
	flowLabel      uint32
	icmp           uint16
	hasICMP        bool
}

// record is what the fields of one say.
type record struct {
	key              flow.Key
	version          uint8
	has4, has6       bool
	v4, v6           [2][16]byte // source and destination; some devices have both in each record
	hasAddresses     bool
	in, out          uint32
	forward, reverse half

	egress   bool
	sampler  uint64
	sampling sampling
	text     [2]string // name and description of an interface
	boot     int64     // ms since the epoch
}

// emit hands on the flow of a record, and the way back if it has that.
func (s *Session) emit(r *record, h *Header, rate float64, out Output) {
	if !r.forward.counted && !r.reverse.counted {
		out.Count(NoCounters, 1)
		return
	}
	iface, other := r.in, r.out
	if r.egress {
		r.key.Direction = flow.Egress
		iface, other = other, iface
	}
	if r.forward.counted {
		r.fill(&s.delta, &r.forward, h, rate)
		out.Flow(&s.delta, iface, other)
	}
	if r.reverse.counted {
		back := r.key.Reverse()
		back.VLAN = r.key.VLAN
		r.key = back
		r.fill(&s.delta, &r.reverse, h, rate)
		out.Flow(&s.delta, iface, other)
	}
}

// fill makes the delta of one direction.
func (r *record) fill(d *flow.Delta, c *half, h *Header, rate float64) {
	*d = flow.Delta{Key: r.key, Unattributed: !r.hasAddresses}
	if c.hasICMP && (d.Proto == protoICMP || d.Proto == protoICMPv6) {
		d.DstPort = c.icmp
	}
	d.Counters = c.Counters
	// What a device does not report is what its flows have at least.
	d.WireBytes = max(d.WireBytes, d.Bytes)
	d.Counters.Scale(rate)
	d.First, d.FirstSpread, d.Last = c.first.at, c.first.spread, c.last.at
	if exported := h.Exported.UnixNano(); d.Last == 0 {
		d.Last = exported
	}
	if d.First == 0 || d.First > d.Last {
		d.First, d.FirstSpread = d.Last, 1
	}
	d.TCPFlags, d.TOS, d.FlowLabel = c.flags, c.tos, c.flowLabel
	d.TTLMin, d.TTLMax = c.ttlMin, c.ttlMax
	if d.TTLMin == 0 {
		d.TTLMin = d.TTLMax
	}
}

const (
	protoICMP   = 1
	protoICMPv6 = 58
)
