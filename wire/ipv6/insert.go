package ipv6

import "encoding/binary"

// MaxReceiverOptions is how many options in addition to padding [Insert] puts into one
// header: receivers may drop packets with more (RFC 8504 section 5.3; Linux:
// net.ipv6.max_dst_opts_number).
const MaxReceiverOptions = 8

// Insert returns a copy of IPv6 packet pkt with option o in a header of type proto,
// which is [HopByHop] or [Destination]. Bytes behind the packet's end (Ethernet
// padding) are kept. No transport checksum covers extension headers.
//
// A Hop-by-Hop Options header is the first; a Destination Options header is the
// last, directly before the upper layer, so that only the destination reads it (RFC
// 8200 section 4.1). Where such a header exists there, the option and its padding
// are added at its end; else a header with that option alone is inserted. Existing
// bytes stay as they are, except that padding at the end of the header is replaced
// where a run of more than seven bytes would result.
//
// In addition to the errors of [Walk] it fails with [ErrFragment], [ErrAuthenticated],
// [ErrJumbogram], [ErrNoSpace], [ErrTooLong], or [ErrTooComplex] for a packet with
// [MaxHeaders] headers that would need another one.
func Insert(pkt []byte, proto uint8, o TLV) ([]byte, error) {
	c, err := editable(pkt)
	if err != nil {
		return nil, err
	}
	if len(o.Data) > maxData || proto != HopByHop && proto != Destination {
		return nil, ErrNoSpace
	}
	if h, ok := c.joined(proto); ok {
		return join(pkt, h, o)
	}
	at, link := c.Upper, c.Link
	if proto == HopByHop {
		at, link = HeaderSize, nextHeaderAt
	}
	if c.n == MaxHeaders {
		return nil, errorAt(at, ErrTooComplex)
	}
	header, err := AppendHeader(nil, pkt[link], o)
	if err != nil {
		return nil, err
	}
	out, err := splice(pkt, at, at, header)
	if err != nil {
		return nil, err
	}
	out[link] = proto
	return out, nil
}

// editable walks a packet whose extension headers may be changed. The walk ends
// before Mobility, HIP and Shim6 headers: Destination Options come before those
// (RFC 6275 section 6.1.1, RFC 7401 section 5.1, RFC 5533 section 4.6).
func editable(pkt []byte) (Chain, error) {
	c, err := WalkFunc(pkt, func(h Header) error {
		switch h.Proto {
		case Mobility, HIP, Shim6:
			return ErrSkipRest
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	return c, c.Editable(pkt)
}

// Editable returns nil if extension headers of pkt, which was walked, may grow or
// shrink, else [ErrJumbogram], [ErrTruncated], [ErrFragment] or [ErrAuthenticated].
func (c *Chain) Editable(pkt []byte) error {
	switch n := payloadLength(pkt); {
	case n == 0:
		return ErrJumbogram
	case HeaderSize+n > len(pkt):
		return errorAt(len(pkt), ErrTruncated)
	case c.Fragment:
		return ErrFragment
	case c.Authenticated:
		return ErrAuthenticated
	}
	return nil
}

// joined is the header that an option of a header of type proto is added to.
func (c *Chain) joined(proto uint8) (Header, bool) {
	if c.n == 0 {
		return Header{}, false
	}
	h := c.headers[0]
	if proto == Destination {
		h = c.headers[c.n-1]
	}
	return h, h.Proto == proto
}

// join adds an option at the end of header h.
func join(pkt []byte, h Header, o TLV) ([]byte, error) {
	header := pkt[h.At : h.At+h.Size]
	all, others, padded := 0, 0, optionHeader // where the padding at the end begins
	for option, err := range Options(header) {
		if err != nil {
			return nil, shift(err, h.At)
		}
		all++
		if !option.IsPadding() {
			others++
			padded = option.At + option.Size
		}
	}
	from := h.Size
	if lead := o.Align.padding(from); lead > 0 && lead+from-padded > maxPadding {
		from = padded
	}
	block := o.appendTo(nil, from)
	// The option, and padding before and behind it.
	if from+len(block) > MaxExtensionSize || others == MaxReceiverOptions || all+o.pieces(from) > MaxOptions {
		return nil, ErrNoSpace
	}
	out, err := splice(pkt, h.At+from, h.At+h.Size, block)
	if err != nil {
		return nil, err
	}
	out[h.At+1] = uint8((from+len(block))/unit - 1)
	return out, nil
}

// pieces is how many options appendTo writes at most.
func (o TLV) pieces(at int) int {
	if o.Align.padding(at) > 0 {
		return 3
	}
	return 2
}

// splice returns a copy of pkt in which b takes the place of bytes from to to, with
// the payload length that results.
func splice(pkt []byte, from, to int, b []byte) ([]byte, error) {
	length := payloadLength(pkt) + len(b) - (to - from)
	if length > 0xFFFF {
		return nil, ErrTooLong
	}
	out := make([]byte, 0, len(pkt)+len(b)-(to-from))
	out = append(out, pkt[:from]...)
	out = append(out, b...)
	out = append(out, pkt[to:]...)
	binary.BigEndian.PutUint16(out[payloadLengthAt:], uint16(length))
	return out, nil
}

// shift moves the place of an error that was found in a part of the packet.
func shift(err error, by int) error {
	if e, ok := err.(*Error); ok {
		return errorAt(e.Offset+by, e.Err)
	}
	return err
}
