package pdm

import "encoding/binary"

// maxReceiverOptions is how many options a Linux receiver takes in one
// Destination Options header (net.ipv6.max_dst_opts_number); it drops the packet
// with one more.
const maxReceiverOptions = 8

// Insert returns a copy of IPv6 packet pkt with option o, and never changes pkt.
// It always adds [HeaderSize] octets, and always directly before the upper-layer
// header: a new Destination Options header, or, when one stands there already,
// the option and padding at that header's end. Octets behind the packet's end
// (Ethernet padding) are kept. The transport checksum covers neither.
//
// Besides the errors of [Walk] it fails with [ErrMarked], [ErrVersion2],
// [ErrEncrypted], [ErrAuthenticated], [ErrFragment], [ErrNeighbor],
// [ErrJumbogram], [ErrNoRoom] and [ErrTooLong].
func Insert(pkt []byte, o Option) ([]byte, error) {
	l, err := Walk(pkt)
	if err != nil {
		return nil, err
	}
	if err := l.insertable(pkt); err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(pkt)+HeaderSize)
	out = append(out, pkt[:l.Upper]...)
	if l.joins() {
		out = o.AppendTo(out)
		out = append(out, optionPadN, 2, 0, 0)
		out[l.Last+1] += HeaderSize / extUnit
	} else {
		out = AppendHeader(out, l.Proto, o)
		out[l.Link] = protoDestination
	}
	out = append(out, pkt[l.Upper:]...)
	binary.BigEndian.PutUint16(out[payloadLenAt:], uint16(payloadLen(pkt)+HeaderSize))
	return out, nil
}

// joins tells whether the option goes into the header before Upper.
func (l *Layout) joins() bool { return l.Last != 0 && l.lastProto == protoDestination }

// hasRoom tells whether the option and the padding behind it still fit.
func (h *Header) hasRoom() bool {
	return h.Size+HeaderSize <= maxHeaderSize && h.Others < maxReceiverOptions && h.options+2 <= MaxOptions
}

func (l *Layout) insertable(pkt []byte) error {
	if err := l.editable(pkt); err != nil {
		return err
	}
	switch {
	case l.Version2:
		return ErrVersion2
	case l.Option != 0:
		return ErrMarked
	case l.Proto == protoESP:
		return ErrEncrypted
	case payloadLen(pkt)+HeaderSize > 0xFFFF:
		return ErrTooLong
	case l.joins() && !l.lastDest.hasRoom():
		return ErrNoRoom
	case !l.joins() && l.headers == MaxHeaders:
		return ErrTooComplex
	}
	if l.Proto != protoICMPv6 {
		return nil
	}
	if l.Upper >= l.End {
		return errorAt(l.Upper, ErrTruncated)
	}
	// Multicast listener and neighbor discovery, MLDv2.
	if t := pkt[l.Upper]; t >= 130 && t <= 137 || t == 143 {
		return ErrNeighbor
	}
	return nil
}

// editable tells whether extension headers may grow or shrink at all.
func (l *Layout) editable(pkt []byte) error {
	switch n := payloadLen(pkt); {
	case n == 0:
		return ErrJumbogram
	case ipv6HeaderSize+n > len(pkt):
		return errorAt(len(pkt), ErrTruncated)
	case l.Fragment:
		return ErrFragment
	case l.Authenticated:
		return ErrAuthenticated
	}
	return nil
}

// Remove returns a copy of IPv6 packet pkt without its PDM option, and the
// option; it never changes pkt. It undoes [Insert] octet for octet. Elsewhere it
// removes the header when nothing but the option and padding is in it, and else
// a multiple of eight octets, so that other options keep their alignment.
//
// Besides the errors of [Find] it fails with [ErrAuthenticated], [ErrFragment]
// and [ErrJumbogram].
func Remove(pkt []byte) ([]byte, Option, error) {
	l, err := Walk(pkt)
	if err != nil {
		return nil, Option{}, err
	}
	o, err := l.Decode(pkt)
	if err != nil {
		return nil, Option{}, err
	}
	if err := l.editable(pkt); err != nil {
		return nil, Option{}, err
	}
	h, err := ParseHeader(pkt[l.Header:])
	if err != nil {
		return nil, Option{}, err
	}
	from, to, pad := removal(pkt[l.Header:l.Header+h.Size], h)
	out := make([]byte, 0, len(pkt))
	out = append(out, pkt[:l.Header+from]...)
	out = appendPadding(out, pad)
	out = append(out, pkt[l.Header+to:]...)
	if to-from == h.Size {
		out[l.headerLink] = h.Next
	} else {
		out[l.Header+1] -= uint8((to - from - pad) / extUnit)
	}
	binary.BigEndian.PutUint16(out[payloadLenAt:], uint16(payloadLen(pkt)-(to-from-pad)))
	return out, o, nil
}

// removal says which octets of Destination Options header b give way to pad
// octets of padding.
func removal(b []byte, h Header) (from, to, pad int) {
	// With the option in its first eight octets, a header of nothing else did
	// not exist before it.
	if h.Others == 0 && h.Option < extUnit {
		return 0, len(b), 0
	}
	from, to = h.Option, h.Option+OptionSize
	for to < len(b) && b[to] <= optionPadN {
		size, _ := tlvSize(b, to) // ParseHeader has been here
		to += size
	}
	pad = (to - from) % extUnit
	if pad == 0 {
		return from, to, 0
	}
	// Receivers drop runs of more than seven octets of padding: join what is
	// left to the padding before the option.
	from = paddingBefore(b, from)
	return from, to, (to - from) % extUnit
}

// paddingBefore is where the run of padding that ends at offset end begins.
func paddingBefore(b []byte, end int) int {
	start := optionTypeSize
	for at := optionTypeSize; at < end; {
		size, _ := tlvSize(b, at)
		if b[at] > optionPadN {
			start = at + size
		}
		at += size
	}
	return start
}

// appendPadding appends n octets, fewer than eight, of padding.
func appendPadding(b []byte, n int) []byte {
	switch n {
	case 0:
		return b
	case 1:
		return append(b, optionPad1)
	}
	b = append(b, optionPadN, uint8(n-optionTypeSize))
	return append(b, make([]byte, n-optionTypeSize)...)
}
