package capture

import (
	"encoding/binary"

	"github.com/waymark-net/waymark/wire/ipv6"
)

// Protocol numbers (IANA).
const (
	protoICMP    = 1
	protoIPIP    = 4
	protoTCP     = 6
	protoUDP     = 17
	protoDCCP    = 33
	protoIPv6    = 41
	protoGRE     = 47
	protoESP     = 50
	protoICMPv6  = 58
	protoSCTP    = 132
	protoUDPLite = 136
)

// isExtension says whether proto is a header to be skipped. In IPv4 only AH is.
func isExtension(proto uint8, v6 bool) bool {
	return proto == ipv6.Auth || v6 && ipv6.IsExtension(proto)
}

// TCP flags that handshakes are known by.
const (
	tcpSYN = 0x02
	tcpACK = 0x10
)

// transport reads ports and moves behind the transport header. Other protocols
// than those below have neither.
func (d *dissector) transport(p *parsed) reason {
	switch p.Proto {
	case protoTCP:
		return d.tcp(p)
	case protoUDP, protoUDPLite:
		return d.ports(p, 8)
	case protoSCTP:
		return d.ports(p, 12)
	case protoDCCP:
		return d.dccp(p)
	case protoICMP:
		return d.icmp(p, 8, 0)
	case protoICMPv6:
		return d.icmp(p, 128, 129)
	}
	return counted
}

// ports reads the two ports that a header of n bytes begins with.
func (d *dissector) ports(p *parsed, n int) reason {
	b, ok := d.take(n)
	if !ok {
		return d.missing(n)
	}
	p.SrcPort = binary.BigEndian.Uint16(b)
	p.DstPort = binary.BigEndian.Uint16(b[2:])
	return counted
}

func (d *dissector) tcp(p *parsed) reason {
	const headerMin = 20
	at := d.pos
	if why := d.ports(p, headerMin); why != counted {
		return why
	}
	b := d.data[at:]
	p.seq = binary.BigEndian.Uint32(b[4:])
	p.ack = binary.BigEndian.Uint32(b[8:])
	word := binary.BigEndian.Uint16(b[12:])
	p.tcpFlags = word & 0xfff
	return d.skip(at, int(word>>12)*4, headerMin)
}

func (d *dissector) dccp(p *parsed) reason {
	const headerMin = 12 // the generic header with short sequence numbers (RFC 4340, 5.1)
	at := d.pos
	if why := d.ports(p, headerMin); why != counted {
		return why
	}
	return d.skip(at, int(d.data[at+4])*4, headerMin)
}

// skip moves behind a header that tells its own length.
func (d *dissector) skip(at, length, lengthMin int) reason {
	if length < lengthMin || at+length > d.end {
		return reasonMalformed
	}
	d.pos = at + length
	return counted
}

// icmp puts the identifier of an echo message into the source port, type and
// code into the destination port.
func (d *dissector) icmp(p *parsed, echoRequest, echoReply uint8) reason {
	const headerMin, header = 4, 8
	at := d.pos
	b, ok := d.take(headerMin)
	if !ok {
		return d.missing(headerMin)
	}
	p.DstPort = binary.BigEndian.Uint16(b)
	d.pos = at
	if b[0] == echoRequest || b[0] == echoReply {
		b, ok = d.take(header)
		if !ok {
			return d.missing(header)
		}
		p.SrcPort = binary.BigEndian.Uint16(b[4:])
	}
	d.pos = min(at+header, d.end)
	return counted
}
