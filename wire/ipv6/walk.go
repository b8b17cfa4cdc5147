package ipv6

import "encoding/binary"

// MaxHeaders bounds the extension headers that are walked in one packet. RFC 8200
// section 4.1 recommends an order of seven.
const MaxHeaders = 8

// Header is an extension header in a packet.
type Header struct {
	Extension
	Proto uint8 // its own protocol number
	At    int   // offset in the packet
	Link  int   // offset of the byte that names it: a Next Header field
}

// Chain is where the extension headers of a packet are, and what is behind them.
// Offsets are bytes from the start of the packet.
type Chain struct {
	End   int   // of the packet by its payload length, or of the slice where that is shorter
	Upper int   // where the walk ended: upper layer, ESP, or a fragment that is not the first
	Proto uint8 // protocol number of what is at Upper
	Link  int   // the byte that names it: a Next Header field

	Authenticated bool // an Authentication Header is before Upper
	Fragment      bool // a Fragment header is before or at Upper

	headers [MaxHeaders]Header
	n       int
}

// Headers returns the extension headers before Upper in their order.
func (c *Chain) Headers() []Header { return c.headers[:c.n] }

// Last returns the extension header directly before Upper; ok is false where there
// is none.
func (c *Chain) Last() (h Header, ok bool) {
	if c.n == 0 {
		return Header{}, false
	}
	return c.headers[c.n-1], true
}

// Walk follows the extension headers of an IPv6 packet up to the upper layer. It
// does not look into options, nor into the inner packet of a tunnel.
//
// It fails with [ErrNotIPv6], [ErrTruncated], [ErrMalformed] for a Hop-by-Hop
// Options header that is not the first (RFC 8200 section 4.3), or [ErrTooComplex].
// The chain then holds what was walked before.
func Walk(pkt []byte) (Chain, error) {
	return WalkFunc(pkt, func(Header) error { return nil })
}

// WalkFunc is [Walk] with a function that is called for each extension header,
// which is in pkt as a whole. An error of the function ends the walk before that
// header and is returned; [ErrSkipRest] ends it without an error.
func WalkFunc(pkt []byte, visit func(Header) error) (Chain, error) {
	if len(pkt) < HeaderSize {
		return Chain{}, errorAt(len(pkt), ErrTruncated)
	}
	if pkt[0]>>4 != 6 {
		return Chain{}, errorAt(0, ErrNotIPv6)
	}
	c := Chain{End: len(pkt), Upper: HeaderSize, Proto: pkt[nextHeaderAt], Link: nextHeaderAt}
	// A jumbogram has payload length 0 and ends where the slice does.
	if n := payloadLength(pkt); n != 0 {
		c.End = min(c.End, HeaderSize+n)
	}
	for IsExtension(c.Proto) {
		h, err := c.header(pkt)
		if err != nil {
			return c, err
		}
		if h.FragmentOffset != 0 {
			break // what follows is data
		}
		switch err := visit(h); err {
		case nil:
		case ErrSkipRest:
			return c, nil
		default:
			return c, err
		}
		c.headers[c.n] = h
		c.n++
		c.Link, c.Proto = h.At, h.Next
		c.Upper += h.Size
	}
	return c, nil
}

// header reads the extension header at c.Upper.
func (c *Chain) header(pkt []byte) (Header, error) {
	h := Header{Proto: c.Proto, At: c.Upper, Link: c.Link}
	if h.Proto == HopByHop && h.At != HeaderSize {
		return h, errorAt(h.Link, ErrMalformed)
	}
	var err error
	h.Extension, err = ParseExtension(h.Proto, pkt[h.At:c.End])
	switch {
	case err != nil || h.At+h.Size > c.End:
		return h, errorAt(c.End, ErrTruncated)
	case h.FragmentOffset == 0 && c.n == MaxHeaders:
		return h, errorAt(h.At, ErrTooComplex)
	case h.Proto == Fragment:
		c.Fragment = true
	case h.Proto == Auth:
		c.Authenticated = true
	}
	return h, nil
}

func payloadLength(pkt []byte) int { return int(binary.BigEndian.Uint16(pkt[payloadLengthAt:])) }
