package ipv6

import "bytes"

// Remove returns a copy of IPv6 packet pkt without the option at offset at, which
// has alignment a. It undoes [Insert] byte for byte, unless that had to replace
// padding. Elsewhere it removes the header when nothing but the option and padding
// is in it, and else a multiple of eight bytes, so that the other options keep their
// alignment, with padding as RFC 8504 section 5.3 allows.
//
// In addition to the errors of [Walk] it fails with [ErrNoOption] where no option other
// than padding begins at that offset, [ErrFragment], [ErrAuthenticated] and
// [ErrJumbogram].
func Remove(pkt []byte, at int, a Align) ([]byte, error) {
	c, err := editable(pkt)
	if err != nil {
		return nil, err
	}
	h, ok := c.holding(at)
	if !ok {
		return nil, errorAt(at, ErrNoOption)
	}
	header := pkt[h.At : h.At+h.Size]
	cut, err := removal(header, at-h.At, a)
	if err != nil {
		return nil, shift(err, h.At)
	}
	out, err := splice(pkt, h.At+cut.from, h.At+cut.to, AppendPadding(nil, cut.padding))
	if err != nil {
		return nil, err
	}
	if removed := cut.to - cut.from - cut.padding; removed == h.Size {
		out[h.Link] = h.Next
	} else {
		out[h.At+1] -= uint8(removed / unit)
	}
	return out, nil
}

// holding is the Hop-by-Hop or Destination Options header around an offset.
func (c *Chain) holding(at int) (Header, bool) {
	for _, h := range c.Headers() {
		if (h.Proto == HopByHop || h.Proto == Destination) && at >= h.At+optionHeader && at < h.At+h.Size {
			return h, true
		}
	}
	return Header{}, false
}

// cut is what of a header gives way to padding.
type cut struct{ from, to, padding int }

// removal decides what is cut to remove the option at offset at of header.
func removal(header []byte, at int, a Align) (cut, error) {
	var option Option
	others := 0
	before := optionHeader // where the padding before the option begins
	after := 0             // where the padding behind it ends
	open := false          // only padding since the option
	whole := false         // an option begins where Insert would have begun
	for o, err := range Options(header) {
		end := o.At + o.Size
		whole = whole || o.At == at-a.padding(0)
		switch {
		case err != nil:
			return cut{}, err
		case o.At == at && !o.IsPadding():
			option, after, open = o, end, true
		case o.IsPadding() && open:
			after = end
		case !o.IsPadding():
			others++
			open = false
			if o.At < at {
				before = end
			}
		}
	}
	switch {
	case option.Size == 0:
		return cut{}, errorAt(at, ErrNoOption)
	case others == 0 && (at < unit || at == optionHeader+a.padding(optionHeader)):
		return cut{0, len(header), 0}, nil // it was inserted with its header
	}
	if c, ok := inserted(header, option, a); ok && whole && (c.to == after || c.from-before+after-c.to <= maxPadding) {
		return c, nil
	}
	return cut{before, after, (after - before) % unit}, nil
}

// inserted is what Insert added for the option, if it did: whole units with the
// padding that it writes.
func inserted(header []byte, o Option, a Align) (cut, bool) {
	from := o.At - a.padding(0)
	if from < unit || from%unit != 0 {
		return cut{}, false
	}
	block := TLV{o.Type, o.Data, a}.appendTo(nil, from)
	return cut{from, from + len(block), 0}, bytes.HasPrefix(header[from:], block)
}
