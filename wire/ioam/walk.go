package ioam

import (
	"errors"

	"github.com/waymark-net/waymark/wire/ipv6"
)

// Find returns the IOAM options of an IPv6 packet in their order. pkt may be cut short
// behind the extension headers. It fails as [ipv6.Walk] and [ipv6.Options] do, and
// returns the options before the error. The inner packet of a tunnel is a packet of
// its own.
func Find(pkt []byte) ([]Option, error) {
	var found []Option
	_, err := walk(pkt, func(o Option) { found = append(found, o) })
	return found, err
}

// walk calls visit for each IOAM option.
func walk(pkt []byte, visit func(Option)) (ipv6.Chain, error) {
	return ipv6.WalkFunc(pkt, func(h ipv6.Header) error {
		if h.Proto != ipv6.HopByHop && h.Proto != ipv6.Destination {
			return nil
		}
		for o, err := range ipv6.Options(pkt[h.At : h.At+h.Size]) {
			switch {
			case err != nil:
				return shift(err, h.At)
			case o.Type != OptionMutable && o.Type != OptionImmutable:
				continue
			}
			at, end := h.At+o.At, h.At+o.At+o.Size
			visit(Option{Header: h.Proto, Offset: o.At, At: at, Raw: pkt[at:end:end]})
		}
		return nil
	})
}

// shift moves the place of an error that was found in a part of the packet.
func shift(err error, by int) error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return &Error{Offset: e.Offset + by, Err: e.Err}
	}
	return err
}
