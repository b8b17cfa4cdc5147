package capture

import (
	"math"

	"github.com/waymark-net/waymark/internal/flow"
)

// meter counts frames into flows, one after the other: the metering process of
// RFC 7011, 2, behind both rings and files.
type meter struct {
	tunnels tunnelSet
	below   uint32 // a frame is counted when random is at most this
	random  func() uint32

	table      *table
	fragments  fragments
	handshakes handshakes
	counts     map[place]*[reasons]amount

	p parsed // of the frame at hand
}

// place is where packets were seen.
type place struct {
	iface     flow.Iface
	direction flow.Direction
}

// amount is of packets that are in no flow.
type amount struct{ packets, frames, bytes uint64 }

func newMeter(cfg Config, random func() uint32) *meter {
	m := &meter{
		below: math.MaxUint32, random: random,
		table:      newTable(int(cfg.MaxEntries)),
		fragments:  newFragments(),
		handshakes: newHandshakes(),
		counts:     map[place]*[reasons]amount{},
	}
	for _, t := range cfg.Tunnels {
		m.tunnels |= 1 << t
	}
	if cfg.Sampling > 1 {
		m.below = math.MaxUint32 / cfg.Sampling
	}
	return m
}

// add counts a frame seen at a time in ns since the epoch.
func (m *meter) add(f *frame, at place, now int64) {
	p := &m.p
	chosen := m.below == math.MaxUint32 || m.random() <= m.below
	why := reasonSampledOut
	if chosen || f.gso.size > 0 { // a burst's segments are known by its headers
		why = p.dissect(f, m.tunnels)
	}
	if !chosen {
		why = reasonSampledOut
	}
	p.Iface, p.Direction = at.iface, at.direction
	if why != counted {
		m.count(at, why, amount{f.segments(p, why), 1, uint64(f.length)})
		return
	}
	b := burstOf(f, p)
	if b.inexact {
		m.count(at, reasonGSOInexact, amount{b.packets, 1, uint64(f.length)})
	}
	if p.fragment != fragmentNone && !m.fragments.match(p, now) {
		m.count(at, reasonFragmentUnmatched, amount{b.packets, 1, uint64(f.length)})
	}

	d := m.table.find(&p.Key)
	flagsBefore := d.TCPFlags
	p.addTo(d, f, b, now)
	if p.isHandshake(flagsBefore) && !d.Unattributed {
		m.handshake(d, at, f, now)
	}
}

// addTo counts a frame in its flow.
func (p *parsed) addTo(d *flow.Delta, f *frame, b burst, now int64) {
	if d.Packets == 0 {
		d.First = now
		d.TOS, d.FlowLabel, d.VNI = p.tos, p.flowLabel, p.vni
		d.TTLMin, d.TTLMax = p.ttl, p.ttl
	}
	d.Packets += b.packets
	d.Bytes += b.bytes
	d.PayloadBytes += b.payload
	d.WireBytes += b.wire
	d.Frames++
	d.FrameBytes += uint64(f.length)
	d.Last = now
	d.TCPFlags |= p.tcpFlags
	if p.Proto == protoTCP {
		d.Opening |= flow.OpeningOf(p.tcpFlags)
	}
	d.TTLMin, d.TTLMax = min(d.TTLMin, p.ttl), max(d.TTLMax, p.ttl)
	if p.tos&3 == 3 {
		d.CEPackets += b.packets
	}
	if p.fragment != fragmentNone {
		d.Fragments += b.packets
	}
}

// isHandshake says whether p can be part of one: it has SYN, or is the first
// with ACK of its flow in this interval.
func (p *parsed) isHandshake(flagsBefore uint16) bool {
	if p.Proto != protoTCP || p.fragment == fragmentLater {
		return false
	}
	return p.tcpFlags&tcpSYN != 0 || p.tcpFlags&tcpACK != 0 && flagsBefore&tcpACK == 0
}

func (m *meter) handshake(d *flow.Delta, at place, f *frame, now int64) {
	rtt, lost := m.handshakes.step(&m.p, now)
	if rtt.Responder != 0 {
		d.RTT.Responder = rtt.Responder
	}
	if rtt.Initiator != 0 {
		d.RTT.Initiator = rtt.Initiator
	}
	if lost {
		m.count(at, reasonHandshakeLost, amount{1, 1, uint64(f.length)})
	}
}

func (m *meter) count(at place, why reason, more amount) {
	c := m.counts[at]
	if c == nil {
		c = new([reasons]amount)
		m.counts[at] = c
	}
	c[why].packets += more.packets
	c[why].frames += more.frames
	c[why].bytes += more.bytes
}
