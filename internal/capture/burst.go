package capture

import "encoding/binary"

// burst is what a frame is on the wire.
type burst struct {
	packets, bytes, payload, wire uint64
	inexact                       bool // what each segment repeats is not known
}

const (
	nestedMax = 4 // tunnels inside tunnels that are looked into

	// The kernel gives longer IPv6 packets a temporary jumbo option (BIG TCP).
	jumboMin    = 65536
	jumboHeader = 8

	tcpHeaderMin  = 20
	udpHeader     = 8
	sctpHeader    = 12
	ipHeaderMin   = 20
	headersMax    = 0x4100 // eight of the longest extension headers fit
	gsoHeaderMin  = etherLen + ipHeaderMin + tcpHeaderMin
	jumboTCPStart = protoTCP<<24 | 0xc204 // next header, length, option and its length
)

// burstOf counts a GSO frame as its segments. Each repeats all headers up to the
// innermost transport header, however many tunnels are around it, and whichever
// of them is recorded.
func burstOf(f *frame, p *parsed) burst {
	b := burst{1, uint64(p.bytes), uint64(p.payload), uint64(f.length + f.outside), false}
	if f.gso.size == 0 {
		return b
	}
	header, removed := p.payloadAt, 0
	switch {
	case p.Proto == protoTCP:
		removed = f.jumboOption(p)
	case p.fragment == fragmentNone:
		header = f.header(p)
		b.inexact = header == 0 || p.Proto == protoESP
		if header == 0 || header > headersMax {
			header = p.payloadAt
		}
	}
	more := f.segmentsBehind(header) - 1
	b.inexact = b.inexact && more > 0
	b.packets += more
	b.payload += more * uint64(header-p.payloadAt)
	header -= removed
	b.bytes += more*uint64(header-p.ipAt) - uint64(removed)
	b.wire += more*uint64(header+f.outside) - uint64(removed)
	return b
}

// header is how many bytes come before what is cut into segments, of a frame
// that is not plain TCP; 0 where nothing says so. With ESP there is a trailer,
// too, which is not there yet.
func (f *frame) header(p *parsed) int {
	if h := f.gso.header(f); h >= p.payloadAt {
		return h
	}
	d := dissector{data: f.data, end: p.ipAt + p.bytes, pos: p.transportAt, gso: true}
	header := 0
	if isSegmented(p.Proto) {
		header = p.payloadAt
	}
	for at, depth := *p, 0; depth < nestedMax; depth++ {
		var inner parsed
		if !d.inside(&at, &inner) {
			break
		}
		if isSegmented(inner.Proto) {
			header = d.pos
			if inner.Proto != protoUDP {
				break
			}
		}
		at = inner
		d.pos = at.transportAt
	}
	return header
}

// header is what the kernel says; 0: nothing.
func (g *gso) header(f *frame) int {
	at := g.transportAt
	switch {
	case at == 0:
		return 0
	case !g.tcp:
		return at + udpHeader
	case at+tcpHeaderMin > len(f.data):
		return 0
	}
	doff := int(f.data[at+12]>>4) * 4
	if doff < tcpHeaderMin {
		return 0
	}
	return at + doff
}

// segments are those of a frame that is in no flow; p has what was read of it.
func (f *frame) segments(p *parsed, why reason) uint64 {
	switch {
	case f.gso.size == 0:
		return 1
	case why == reasonSampledOut && p.payloadAt > 0:
		return burstOf(f, p).packets
	}
	if h := f.gso.header(f); h > 0 {
		return f.segmentsBehind(h)
	}
	return f.segmentsBehind(gsoHeaderMin)
}

func (f *frame) segmentsBehind(header int) uint64 {
	return uint64(max(1, (f.length-header+f.gso.size-1)/f.gso.size))
}

// jumboOption is the length of the temporary option, which no segment has.
func (f *frame) jumboOption(p *parsed) int {
	const ipv6Header = 40
	at := p.ipAt + ipv6Header
	if !p.IPv6 || p.bytes <= jumboMin || p.transportAt != at+jumboHeader ||
		len(f.data) < at+jumboHeader || binary.BigEndian.Uint32(f.data[at:]) != jumboTCPStart {
		return 0
	}
	return jumboHeader
}

// isSegmented says whether GSO cuts behind the header of a protocol.
func isSegmented(proto uint8) bool {
	return proto == protoTCP || proto == protoUDP || proto == protoSCTP
}

// inside reads the packet that a tunnel has behind the cursor. It counts only if
// it fills the outer one exactly: the first of many tunnelled datagrams in one
// frame (UDP_L4) does not.
func (d *dissector) inside(p, inner *parsed) bool {
	etherType, ok := d.nestedTunnel(p)
	if ok && etherType == typeTEB {
		etherType, ok = d.innerEthernet()
	}
	if !ok || etherType != typeIPv4 && etherType != typeIPv6 {
		return false
	}
	end := d.end
	return d.ip(inner, etherType) == counted && inner.ipAt+inner.bytes == end && inner.fragment == fragmentNone
}

// nestedTunnel moves behind the header of a tunnel: VXLAN or Geneve on any port.
func (d *dissector) nestedTunnel(p *parsed) (etherType uint16, ok bool) {
	switch p.Proto {
	case protoIPIP:
		return typeIPv4, true
	case protoIPv6:
		return typeIPv6, true
	case protoGRE:
		etherType, _, ok = d.gre()
		return etherType, ok
	case protoUDP:
		d.pos += udpHeader
		at := *d
		if _, ok = d.vxlan(); ok {
			return typeTEB, true
		}
		*d = at
		etherType, _, ok = d.geneve()
		return etherType, ok
	}
	return 0, false
}
