package ioam

import (
	"slices"

	"github.com/waymark-net/waymark/wire/ipv6"
)

// Transit returns a copy of IPv6 packet pkt with its traces as the node passes them on,
// and the verdict on each option of IOAM in its Hop-by-Hop Options header. The copy is
// nil where a verdict drops the packet. The hop limit that the node writes is one less
// than that of pkt, which Transit leaves as it is. Incremental traces grow as
// [ipv6.Replace] makes options grow; one whose packet cannot grow gets Overflow.
//
// It fails as [Find] does.
func (n *Node) Transit(pkt []byte, p Passage) ([]byte, []Verdict, error) {
	p.HopLimit = 0
	found, err := Find(pkt)
	if err != nil {
		return nil, nil, err
	}
	if pkt[hopLimitAt] > 0 {
		p.HopLimit = pkt[hopLimitAt] - 1
	}
	out := slices.Clone(pkt)
	var verdicts []Verdict
	for _, o := range found {
		if o.Header != ipv6.HopByHop {
			break // that of the destination
		}
		o.At += len(out) - len(pkt) // the traces before have grown
		option, v := n.Update(o.Raw, o.Offset, p)
		if len(option) != len(o.Raw) {
			grown, err := ipv6.Replace(out, o.At, option[2:])
			if err == nil {
				out = grown
			} else {
				option, v = overflowed(o.Raw), OverflowSet
			}
		}
		if len(option) == len(o.Raw) {
			copy(out[o.At:], option)
		}
		if verdicts = append(verdicts, v); v.Drops() {
			return nil, verdicts, nil
		}
	}
	return out, verdicts, nil
}

// hopLimitAt is where the hop limit is in an IPv6 header.
const hopLimitAt = 7

// overflowed is a copy of a trace option with the Overflow flag.
func overflowed(option []byte) []byte {
	out := slices.Clone(option)
	out[headerSize+2] |= uint8(Overflow >> 1) // the flags are in the bits from 10 to 7 of a word
	return out
}
