// Package tlv lists the options of IPv6 packets for tests that compare what was inserted or removed.
package tlv

import "github.com/waymark-net/waymark/wire/ipv6"

// Placed is an option where it is in a packet, in bytes from its start.
type Placed struct {
	At   int
	Type uint8
	Raw  string // the whole option
}

// Of lists the options of all headers of an IPv6 packet but padding, and returns the longest run of padding in bytes, as
// wire/ipv6 finds them.
func Of(pkt []byte) (list []Placed, padding int, err error) {
	c, err := ipv6.Walk(pkt)
	if err != nil {
		return nil, 0, err
	}
	for _, h := range c.Headers() {
		if h.Proto != ipv6.HopByHop && h.Proto != ipv6.Destination {
			continue
		}
		run := 0
		for o, err := range ipv6.Options(pkt[h.At:]) {
			if err != nil {
				return nil, 0, err
			}
			if o.IsPadding() {
				run += o.Size
				padding = max(padding, run)
				continue
			}
			run = 0
			at := h.At + o.At
			list = append(list, Placed{at, o.Type, string(pkt[at : at+o.Size])})
		}
	}
	return list, padding, nil
}
