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
		err := walkHeader(pkt[h.At:h.At+h.Size], func(o Option) {
			o.Header, o.At = h.Proto, h.At+o.At
			visit(o)
		})
		return shift(err, h.At)
	})
}

// walkHeader calls visit for each IOAM option of a header.
func walkHeader(header []byte, visit func(Option)) error {
	for o, err := range ipv6.Options(header) {
		if err != nil {
			return err
		}
		if o.Type == OptionMutable || o.Type == OptionImmutable {
			end := o.At + o.Size
			visit(Option{Offset: o.At, At: o.At, Raw: header[o.At:end:end]})
		}
	}
	return nil
}

// FindInHeader returns the IOAM options of the Hop-by-Hop or Destination Options header
// that b starts with; proto says which it is. It fails as [ipv6.Options] does, and
// returns the options before the error.
func FindInHeader(proto uint8, b []byte) ([]Option, error) {
	var found []Option
	err := walkHeader(b, func(o Option) {
		o.Header = proto
		found = append(found, o)
	})
	return found, err
}

// shift moves the place of an error that was found in a part of the packet.
func shift(err error, by int) error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return &Error{Offset: e.Offset + by, Err: e.Err}
	}
	return err
}
