// Package offline computes from a capture what the agent computes on the wire.
// Input: the frames of a file. Output: its packets with PDM or IOAM and, per flow with
// PDM, the delays and losses of package inband. waymark decode calls it.
package offline

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/wire/pdm"
)

// Flow is the 5-tuple of a packet. An ICMPv6 echo has its identifier as both
// ports, so that each ping is a flow; other protocols without ports have 0.
type Flow struct {
	Src, Dst netip.AddrPort
	Proto    uint8
}

// Packet is an IPv6 header of a frame, and the PDM and IOAM options behind it.
type Packet struct {
	Flow
	Frame  int
	Time   time.Time
	Option pdm.Option
	Word   uint32 // as in inband.Received
	Err    error  // why Option means nothing: an error of pdm.Find
	bare   bool   // TCP: no payload
	syn    bool   // TCP: opens the connection
	synAck bool   // TCP: answers that

	IOAM    []IOAM
	IOAMErr error // why there may be more: an error of ioam.Find
}

// Unmarked reports whether the packet is simply one without PDM.
func (p *Packet) Unmarked() bool { return errors.Is(p.Err, pdm.ErrNone) }

// plain reports whether there is nothing to say about the packet.
func (p *Packet) plain() bool { return p.Unmarked() && len(p.IOAM) == 0 && p.IOAMErr == nil }

func (p *Packet) inband() inband.Packet {
	return inband.Packet{Time: p.Time, Option: p.Option, Word: p.Word, Bare: p.bare}
}

// Decode calls emit for every IPv6 header of a frame, outer ones first: a tunnel's
// inner packet may carry an option of its own. It returns false when the frame's
// link type is not known.
func Decode(f capfile.Frame, emit func(Packet)) bool {
	return headers(f.Link, f.Data, func(pkt []byte) {
		p := decode(pkt)
		p.Frame, p.Time = f.Number, f.Time
		emit(p)
	})
}

// IANA protocol numbers with ports, and ICMPv6.
const (
	protoTCP     = 6
	protoUDP     = 17
	protoDCCP    = 33
	protoICMPv6  = 58
	protoSCTP    = 132
	protoUDPLite = 136
)

func decode(pkt []byte) Packet {
	var p Packet
	p.options(pkt)
	l, err := pdm.Walk(pkt)
	if err != nil {
		p.Err = err
		if len(pkt) >= 40 {
			p.Src, p.Dst = addresses(pkt, 0, 0)
		}
		return p
	}
	p.Option, p.Err = l.Decode(pkt)
	p.Proto = l.Proto
	upper := pkt[l.Upper:l.End]
	srcPort, dstPort := ports(l.Proto, upper)
	p.Src, p.Dst = addresses(pkt, srcPort, dstPort)
	if len(upper) >= 8 {
		p.Word = binary.BigEndian.Uint32(upper[4:])
	}
	if l.Proto == protoTCP && len(upper) >= 14 {
		const syn, ack = 0x02, 0x10
		p.syn = upper[13]&(syn|ack) == syn
		p.synAck = upper[13]&(syn|ack) == syn|ack
		p.bare = len(upper) <= int(upper[12]>>4)*4
	}
	return p
}

func addresses(pkt []byte, srcPort, dstPort uint16) (src, dst netip.AddrPort) {
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(pkt[8:24])), srcPort),
		netip.AddrPortFrom(netip.AddrFrom16([16]byte(pkt[24:40])), dstPort)
}

func ports(proto uint8, upper []byte) (src, dst uint16) {
	switch proto {
	case protoTCP, protoUDP, protoDCCP, protoSCTP, protoUDPLite:
		if len(upper) >= 4 {
			return binary.BigEndian.Uint16(upper), binary.BigEndian.Uint16(upper[2:])
		}
	case protoICMPv6:
		const echoRequest, echoReply = 128, 129
		if len(upper) >= 6 && (upper[0] == echoRequest || upper[0] == echoReply) {
			id := binary.BigEndian.Uint16(upper[4:])
			return id, id
		}
	}
	return 0, 0
}
