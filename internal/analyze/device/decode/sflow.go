package decode

import (
	"fmt"
	"time"

	"github.com/waymark-net/waymark/internal/capture"
	"github.com/waymark-net/waymark/internal/flow"
)

func peekSFlow(b []byte) (h Header, err error) {
	const head, most = 28, 1 << 12
	if len(b) < head {
		return h, short(SFlow, len(b), head)
	}
	at := 12 // behind an IPv4 address
	switch family := be.Uint32(b[4:]); family {
	case 1:
	case 2:
		at = 24
	default:
		return h, fmt.Errorf("sflow: an agent with an address of type %d, which is neither IPv4 (1) nor IPv6 (2)", family)
	}
	if len(b) < at+16 {
		return h, short(SFlow, len(b), at+16)
	}
	count := be.Uint32(b[at+12:])
	if count > most {
		return h, fmt.Errorf("sflow: %d samples in a datagram of %d bytes", count, len(b))
	}
	return Header{
		Protocol: SFlow, Domain: be.Uint32(b[at:]), Sequence: be.Uint32(b[at+4:]), Uptime: time.Duration(be.Uint32(b[at+8:])) * time.Millisecond, HasUptime: true,
		count: int(count), body: b[at+16:],
	}, nil
}

// Formats of samples, and of records in them, of the enterprise 0.
const (
	flowSample     = 1
	expandedSample = 3
	rawHeader      = 1
	sampledIPv4    = 3
	sampledIPv6    = 4
	extendedSwitch = 1001
)

// opaque is the next element of a list: its format, and its bytes.
func opaque(b []byte) (format uint32, data, rest []byte, right bool) {
	if len(b) < 8 {
		return 0, nil, nil, false
	}
	n := uint64(be.Uint32(b[4:]))
	padded := (n + 3) &^ 3
	if padded > uint64(len(b)-8) {
		return 0, nil, nil, false
	}
	return be.Uint32(b), b[8 : 8+n], b[8+padded:], true
}

// sflow reads samples; false: the datagram is malformed.
func (s *Session) sflow(h *Header, now time.Time, out Output) bool {
	b := h.body
	for range h.count {
		format, data, rest, right := opaque(b)
		if !right {
			return false
		}
		b = rest
		switch format {
		case flowSample, expandedSample:
			if !s.sample(data, format == expandedSample, now, out) {
				return false
			}
		default:
			out.Count(OtherSample, 1)
		}
	}
	return true
}

// sampled is what a sample says besides the packet.
type sampled struct {
	source, index uint32 // what the packet was sampled at: its type, 0 for an interface, and number
	rate, drops   uint32
	in, out       uint32
	records       uint32
}

// readSample reads the head of a sample of a packet.
func readSample(b []byte, expanded bool) (s sampled, rest []byte, right bool) {
	const compact, long = 32, 44
	if expanded {
		if len(b) < long {
			return s, nil, false
		}
		s = sampled{source: be.Uint32(b[4:]), index: be.Uint32(b[8:]), rate: be.Uint32(b[12:]), drops: be.Uint32(b[20:]), records: be.Uint32(b[40:])}
		if be.Uint32(b[24:]) == 0 {
			s.in = be.Uint32(b[28:])
		}
		if be.Uint32(b[32:]) == 0 {
			s.out = be.Uint32(b[36:])
		}
		return s, b[long:], true
	}
	if len(b) < compact {
		return s, nil, false
	}
	source := be.Uint32(b[4:])
	s = sampled{source: source >> 24, index: source & 0xffffff, rate: be.Uint32(b[8:]), drops: be.Uint32(b[16:]), records: be.Uint32(b[28:])}
	if in := be.Uint32(b[20:]); in>>30 == 0 { // else it is why the packet was dropped, or how many interfaces it left at
		s.in = in
	}
	if to := be.Uint32(b[24:]); to>>30 == 0 {
		s.out = to
	}
	return s, b[compact:], true
}

// sample counts a packet, and as many as it stands for.
func (s *Session) sample(b []byte, expanded bool, now time.Time, out Output) bool {
	of, b, right := readSample(b, expanded)
	if !right || uint64(of.records)*8 > uint64(len(b)) {
		return false
	}
	s.dropped(&of, out)
	d := &s.delta
	counted, vlan := false, uint16(0)
	for range of.records {
		format, data, rest, right := opaque(b)
		if !right {
			return false
		}
		b = rest
		switch format {
		case rawHeader, sampledIPv4, sampledIPv6:
			if !counted {
				*d = flow.Delta{}
				counted = measure(format, data, d)
			}
		case extendedSwitch:
			if len(data) >= 4 {
				vlan = uint16(be.Uint32(data)) & 0xfff
			}
		}
	}
	if !counted {
		out.Count(NoFlow, 1)
		return true
	}
	if d.VLAN == 0 && vlan != 0xfff {
		d.VLAN = vlan
	}
	rate := s.rate(float64(of.rate))
	out.Sampled(rate)
	d.Counters.Scale(rate)
	d.First, d.Last = now.UnixNano(), now.UnixNano()
	iface, other := of.in, of.out
	if of.source == 0 && of.index == of.out && of.out != of.in {
		d.Direction = flow.Egress
		iface, other = other, iface
	}
	out.Flow(d, iface, other)
	return true
}

// dropped counts samples that the device had to drop, of which it reports the sum.
func (s *Session) dropped(of *sampled, out Output) {
	source := uint64(of.source)<<32 | uint64(of.index)
	before, known := s.drops[source]
	if !known && len(s.drops) >= mostTemplates {
		return
	}
	s.drops[source] = of.drops
	if known && of.drops > before {
		out.Count(DeviceDrops, uint64(of.drops-before))
	}
}

// measure counts the packet that a record of a sample describes.
func measure(format uint32, b []byte, d *flow.Delta) bool {
	switch format {
	case sampledIPv4, sampledIPv6:
		return measureIP(format, b, d)
	}
	const ethernet, ipv4, ipv6 = 1, 11, 12
	if len(b) < 16 {
		return false
	}
	protocol, length, stripped, n := be.Uint32(b), be.Uint32(b[4:]), be.Uint32(b[8:]), be.Uint32(b[12:])
	if uint64(n) > uint64(len(b)-16) || length > 1<<24 || stripped > length {
		return false
	}
	// What was stripped at the end is the checksum of the frame, which no other count here includes.
	h := capture.Header{Data: b[16 : 16+n], Length: int(length - stripped), IP: protocol == ipv4 || protocol == ipv6}
	return (protocol == ethernet || h.IP) && h.Measure(d)
}

// measureIP takes what a device reads of a packet itself.
func measureIP(format uint32, b []byte, d *flow.Delta) bool {
	addresses := 8
	if format == sampledIPv6 {
		addresses = 32
	}
	if len(b) < 8+addresses+16 {
		return false
	}
	d.Packets, d.Bytes, d.WireBytes, d.Frames = 1, uint64(be.Uint32(b)), uint64(be.Uint32(b)), 1
	d.Proto = uint8(be.Uint32(b[4:]))
	a := b[8:]
	if format == sampledIPv6 {
		d.IPv6 = true
		copy(d.Src[:], a)
		copy(d.Dst[:], a[16:])
	} else {
		d.Src, d.Dst = v4(a), v4(a[4:])
	}
	a = a[addresses:]
	d.SrcPort, d.DstPort = uint16(be.Uint32(a)), uint16(be.Uint32(a[4:]))
	d.TCPFlags, d.TOS = uint16(be.Uint32(a[8:]))&0xfff, uint8(be.Uint32(a[12:]))
	return true
}
