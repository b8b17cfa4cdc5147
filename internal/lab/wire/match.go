package wire

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/waymark-net/waymark/wire/ipv6"
)

// Match says which frames injections concern. It must be a pure function.
type Match func(frame []byte) bool

// IANA numbers.
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100
	etherQinQ = 0x88a8
)

// header is what injections look at in a frame.
type header struct {
	ip          bool
	proto       int // after extension headers
	src, dst    uint16
	hasPorts    bool
	destOptions bool
	ndp         bool // neighbour discovery: RFC 4861
}

// Packets matches IPv4 and IPv6 other than neighbour discovery, without which
// nothing would be left to measure.
func Packets(frame []byte) bool {
	h := parse(frame)
	return h.ip && !h.ndp
}

// Proto matches packets of an IANA protocol number.
func Proto(proto int) Match {
	return func(frame []byte) bool {
		h := parse(frame)
		return h.ip && h.proto == proto && !h.ndp
	}
}

// Port matches packets of a protocol from or to a port. Fragments but the first
// have no ports and do not match.
func Port(proto int, port uint16) Match {
	return func(frame []byte) bool {
		h := parse(frame)
		return h.ip && h.proto == proto && h.hasPorts && (h.src == port || h.dst == port)
	}
}

// DestinationOptions matches IPv6 packets with a destination options header, as
// PDM uses (RFC 8250).
func DestinationOptions(frame []byte) bool { return parse(frame).destOptions }

// Matches describes what ParseMatch takes.
const Matches = "ip, tcp, udp, icmp, icmpv6, tcp/PORT, udp/PORT or destination-options"

// ParseMatch reads a match as a user writes it.
func ParseMatch(s string) (Match, error) {
	protos := map[string]int{"tcp": protoTCP, "udp": protoUDP, "icmp": protoICMP, "icmpv6": protoICMPv6}
	switch s {
	case "ip":
		return Packets, nil
	case "destination-options":
		return DestinationOptions, nil
	}
	name, portText, hasPort := strings.Cut(s, "/")
	proto, known := protos[name]
	if known && !hasPort {
		return Proto(proto), nil
	}
	if port, err := strconv.ParseUint(portText, 10, 16); known && err == nil && (proto == protoTCP || proto == protoUDP) {
		return Port(proto, uint16(port)), nil
	}
	return nil, fmt.Errorf("match %q: choose one of %s", s, Matches)
}

func parse(frame []byte) header {
	if len(frame) < 14 {
		return header{}
	}
	etherType, p := binary.BigEndian.Uint16(frame[12:]), frame[14:]
	for (etherType == etherVLAN || etherType == etherQinQ) && len(p) >= 4 {
		etherType, p = binary.BigEndian.Uint16(p[2:]), p[4:]
	}
	switch {
	case etherType == etherIPv4 && len(p) >= 20:
		return parseIPv4(p)
	case etherType == etherIPv6 && len(p) >= 40:
		return parseIPv6(p)
	}
	return header{}
}

func parseIPv4(p []byte) header {
	h := header{ip: true, proto: int(p[9])}
	length := int(p[0]&15) * 4
	offset := binary.BigEndian.Uint16(p[6:]) & 0x1fff
	if length >= 20 && length <= len(p) && offset == 0 {
		h.ports(p[length:])
	}
	return h
}

func parseIPv6(p []byte) header {
	c, err := ipv6.Walk(p)
	h := header{ip: true, proto: int(c.Proto)}
	for _, x := range c.Headers() {
		h.destOptions = h.destOptions || x.Proto == ipv6.Destination
	}
	upper := p[c.Upper:c.End]
	switch {
	case err != nil || len(upper) == 0:
	case c.Proto == ipv6.Fragment: // not the first: no header follows
		h.proto = int(upper[0])
	case c.Proto == protoICMPv6:
		h.ndp = upper[0] >= 133 && upper[0] <= 137
	default:
		h.ports(upper)
	}
	return h
}

func (h *header) ports(p []byte) {
	if (h.proto == protoTCP || h.proto == protoUDP) && len(p) >= 4 {
		h.src, h.dst = binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:])
		h.hasPorts = true
	}
}
