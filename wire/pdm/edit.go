package pdm

import "github.com/waymark-net/waymark/wire/ipv6"

// Insert returns a copy of IPv6 packet pkt with option o, and never changes pkt.
// It always adds [HeaderSize] bytes, directly before the upper-layer header: a new
// Destination Options header, or, when one is there already, the option and padding
// at that header's end, as [ipv6.Insert] does.
//
// In addition to the errors of [Walk] and [ipv6.Insert] it fails with [ErrMarked],
// [ErrVersion2], [ErrEncrypted] and [ErrNeighbor].
func Insert(pkt []byte, o Option) ([]byte, error) {
	l, err := Walk(pkt)
	if err == nil {
		err = l.insertable(pkt)
	}
	if err != nil {
		return nil, err
	}
	return ipv6.Insert(pkt, ipv6.Destination, o.tlv())
}

func (l *Layout) insertable(pkt []byte) error {
	if err := l.Editable(pkt); err != nil {
		return err
	}
	switch {
	case l.Version2:
		return ErrVersion2
	case l.Option != 0:
		return ErrMarked
	case l.Proto == ipv6.ESP:
		return ErrEncrypted
	case l.Proto != protoICMPv6:
		return nil
	case l.Upper >= l.End:
		return errorAt(l.Upper, ipv6.ErrTruncated)
	}
	// Multicast listener and neighbor discovery, MLDv2.
	if t := pkt[l.Upper]; t >= 130 && t <= 137 || t == 143 {
		return ErrNeighbor
	}
	return nil
}

// Remove returns a copy of IPv6 packet pkt without its PDM option, and the option;
// it never changes pkt. It undoes [Insert] byte for byte; options of others are
// removed as [ipv6.Remove] does.
//
// In addition to the errors of [Find] it fails with [ipv6.ErrAuthenticated], [ipv6.ErrFragment]
// and [ipv6.ErrJumbogram].
func Remove(pkt []byte) ([]byte, Option, error) {
	l, err := Walk(pkt)
	if err != nil {
		return nil, Option{}, err
	}
	o, err := l.Decode(pkt)
	if err != nil {
		return nil, Option{}, err
	}
	out, err := ipv6.Remove(pkt, l.Option, ipv6.Align{})
	if err != nil {
		return nil, Option{}, err
	}
	return out, o, nil
}
