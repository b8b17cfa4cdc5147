package pdm

import (
	"encoding/binary"
	"errors"
)

const (
	ipv6HeaderSize = 40
	payloadLenAt   = 4 // octet of the payload length
	nextHeaderAt   = 6
)

// MaxHeaders bounds the extension headers that are walked in one packet. RFC
// 8200 section 4.1 knows an order of seven.
const MaxHeaders = 8

// Layout is where an IPv6 packet has what concerns PDM. Offsets are octets from
// the start of the packet; 0 stands for none.
type Layout struct {
	End    int   // end of the packet by its payload length, or of the slice if that is shorter
	Upper  int   // header the walk stopped at: upper layer, ESP, or a fragment that is not the first
	Proto  uint8 // protocol number of what is at Upper
	Link   int   // octet that names Proto: a Next Header field
	Last   int   // extension header before Upper
	Header int   // Destination Options header with the PDM option
	Option int   // the PDM option, at its type octet

	Version2      bool // a PDMv2 option is there instead
	Authenticated bool // an Authentication header is before Upper
	Fragment      bool // a Fragment header is before or at Upper

	headers    int    // extension headers before Upper
	headerLink int    // octet that names Header
	lastProto  uint8  // protocol number of Last
	lastDest   Header // Last, when that is a Destination Options header
}

// Walk follows the extension headers of an IPv6 packet. It reads options only in
// Destination Options headers: in others the number of PDM means nothing. pkt
// may be cut short behind the extension headers.
//
// It fails with [ErrNotIPv6] and the errors of [ParseHeader].
func Walk(pkt []byte) (Layout, error) {
	if len(pkt) < ipv6HeaderSize {
		return Layout{}, errorAt(len(pkt), ErrTruncated)
	}
	if pkt[0]>>4 != 6 {
		return Layout{}, errorAt(0, ErrNotIPv6)
	}
	l := Layout{End: len(pkt), Upper: ipv6HeaderSize, Proto: pkt[nextHeaderAt], Link: nextHeaderAt}
	// A jumbogram has payload length 0 and ends where the slice does.
	if n := payloadLen(pkt); n != 0 {
		l.End = min(l.End, ipv6HeaderSize+n)
	}
	for ; ; l.headers++ {
		size, err := l.step(pkt[:l.End])
		if err != nil {
			return Layout{}, err
		}
		if size == 0 {
			return l, nil
		}
		if l.headers == MaxHeaders {
			return Layout{}, errorAt(l.Upper, ErrTooComplex)
		}
		l.Last, l.lastProto = l.Upper, l.Proto
		l.Link, l.Proto = l.Upper, pkt[l.Upper]
		l.Upper += size
	}
}

// step looks at the header at l.Upper and returns its size, or 0 where the walk
// ends.
func (l *Layout) step(pkt []byte) (size int, err error) {
	at := l.Upper
	switch l.Proto {
	case protoHopByHop:
		// Only directly behind the IPv6 header (RFC 8200 section 4.3).
		if at != ipv6HeaderSize {
			return 0, errorAt(l.Link, ErrMalformed)
		}
		return extSize(pkt, at, extUnit, 1)
	case protoRouting:
		return extSize(pkt, at, extUnit, 1)
	case protoAH:
		l.Authenticated = true
		return extSize(pkt, at, 4, 2) // RFC 4302: words of 32 bits, minus 2
	case protoFragment:
		l.Fragment = true
		if at+fragmentHeaderSize > len(pkt) {
			return 0, errorAt(len(pkt), ErrTruncated)
		}
		if binary.BigEndian.Uint16(pkt[at+2:])>>3 != 0 {
			return 0, nil // what follows is data, not a header
		}
		return fragmentHeaderSize, nil
	case protoDestination:
		return l.destination(pkt)
	}
	return 0, nil
}

// destination reads the Destination Options header at l.Upper.
func (l *Layout) destination(pkt []byte) (size int, err error) {
	at := l.Upper
	h, err := ParseHeader(pkt[at:])
	if err != nil {
		if e := (*Error)(nil); errors.As(err, &e) {
			e.Offset += at
		}
		return 0, err
	}
	if h.Option != 0 || h.Version2 {
		if l.Option != 0 || l.Version2 {
			return 0, errorAt(at, ErrTwice)
		}
		l.Version2 = h.Version2
	}
	if h.Option != 0 {
		l.Header, l.headerLink, l.Option = at, l.Link, at+h.Option
	}
	l.lastDest = h
	return h.Size, nil
}

// extSize is the size of the extension header at offset at, whose second octet
// counts units beyond the first extra ones.
func extSize(pkt []byte, at, unit, extra int) (int, error) {
	if at+optionTypeSize > len(pkt) {
		return 0, errorAt(len(pkt), ErrTruncated)
	}
	size := (int(pkt[at+1]) + extra) * unit
	if at+size > len(pkt) {
		return 0, errorAt(len(pkt), ErrTruncated)
	}
	return size, nil
}

func payloadLen(pkt []byte) int { return int(binary.BigEndian.Uint16(pkt[payloadLenAt:])) }

// Find returns the PDM option of an IPv6 packet, wherever it legally stands.
// Besides the errors of [Walk] it fails with [ErrNone] and [ErrVersion2]. The
// inner packet of a tunnel is a packet of its own.
func Find(pkt []byte) (Option, error) {
	l, err := Walk(pkt)
	if err != nil {
		return Option{}, err
	}
	return l.Decode(pkt)
}

// Decode returns the PDM option of the packet that was walked, or [ErrNone] or
// [ErrVersion2].
func (l *Layout) Decode(pkt []byte) (Option, error) {
	switch {
	case l.Version2:
		return Option{}, ErrVersion2
	case l.Option == 0:
		return Option{}, ErrNone
	}
	return DecodeOption(pkt[l.Option:])
}
