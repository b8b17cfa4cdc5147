package ioam

import (
	"slices"

	"github.com/waymark-net/waymark/wire/ipv6"
)

// Insert returns a copy of IPv6 packet pkt with an option of this body in the header
// that its kind belongs into, as [ipv6.Insert] places it. It fails as [AppendOption]
// and [ipv6.Insert] do.
func Insert(pkt []byte, body Body) ([]byte, error) {
	o, err := tlv(body)
	if err != nil {
		return nil, err
	}
	return ipv6.Insert(pkt, body.Kind().Header(), o)
}

// Remove returns a copy of IPv6 packet pkt without the IOAM options that match, and
// these options, which are parts of pkt. It takes them out in the reverse order, so
// that it undoes calls of [Insert] byte for byte; options of others are removed as
// [ipv6.Remove] does. It fails as [Find] and [ipv6.Remove] do.
func Remove(pkt []byte, match func(Option) bool) ([]byte, []Option, error) {
	found, err := Find(pkt)
	if err != nil {
		return nil, nil, err
	}
	found = slices.DeleteFunc(found, func(o Option) bool { return !match(o) })
	out := slices.Clone(pkt)
	for _, o := range slices.Backward(found) {
		if out, err = ipv6.Remove(out, o.At, align); err != nil {
			return nil, nil, err
		}
	}
	return out, found, nil
}

// InNamespace matches options of these namespaces, for [Remove]. Malformed options
// match, too, unless they are too short for a Namespace-ID.
func InNamespace(ids ...uint16) func(Option) bool {
	return func(o Option) bool {
		id, ok := o.Namespace()
		return ok && slices.Contains(ids, id)
	}
}
