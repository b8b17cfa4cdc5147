package pdm

import "github.com/waymark-net/waymark/wire/ipv6"

// MaxHeaders bounds the extension headers that are walked in one packet.
const MaxHeaders = ipv6.MaxHeaders

// Layout is where an IPv6 packet has what concerns PDM. Offsets are bytes from
// the start of the packet; 0 stands for none.
type Layout struct {
	ipv6.Chain      // ends before Mobility, HIP and Shim6 headers
	Header     int  // Destination Options header with the PDM option
	Option     int  // the PDM option, at its type
	Version2   bool // a PDMv2 option is there instead
}

// Walk follows the extension headers of an IPv6 packet. It reads options only in
// Destination Options headers: in others the number of PDM means nothing. pkt
// may be cut short behind the extension headers.
//
// It fails with the errors of [ipv6.Walk] and of [ParseHeader].
func Walk(pkt []byte) (Layout, error) {
	var l Layout
	chain, err := ipv6.WalkFunc(pkt, func(h ipv6.Header) error {
		switch h.Proto {
		case ipv6.Destination:
			return l.destination(pkt, h)
		case ipv6.Mobility, ipv6.HIP, ipv6.Shim6:
			return ipv6.ErrSkipRest
		}
		return nil
	})
	if err != nil {
		return Layout{}, err
	}
	l.Chain = chain
	return l, nil
}

// destination reads a Destination Options header.
func (l *Layout) destination(pkt []byte, at ipv6.Header) error {
	h, err := ParseHeader(pkt[at.At : at.At+at.Size])
	switch {
	case err != nil:
		return shift(err, at.At)
	case h.Option == 0 && !h.Version2:
		return nil
	case l.Option != 0 || l.Version2:
		return errorAt(at.At, ErrTwice)
	}
	l.Version2 = h.Version2
	if h.Option != 0 {
		l.Header, l.Option = at.At, at.At+h.Option
	}
	return nil
}

// Find returns the PDM option of an IPv6 packet, wherever it legally stands.
// In addition to the errors of [Walk] it fails with [ErrNone] and [ErrVersion2]. The
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
