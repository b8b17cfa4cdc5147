package ipv6

// Replace returns a copy of IPv6 packet pkt in which the option at offset at has this
// data. The padding behind the option changes with its length, so that all other
// options keep their alignment; the header grows or shrinks by a multiple of eight
// bytes.
//
// It fails as [Remove] does, and with [ErrNoSpace] and [ErrTooLong] as [Insert] does.
func Replace(pkt []byte, at int, data []byte) ([]byte, error) {
	c, err := editable(pkt)
	if err != nil {
		return nil, err
	}
	h, ok := c.holding(at)
	if !ok {
		return nil, errorAt(at, ErrNoOption)
	}
	header := pkt[h.At : h.At+h.Size]
	end, count, err := padded(header, at-h.At)
	if err != nil {
		return nil, shift(err, h.At)
	}
	old := end - (at - h.At) // with the padding
	block := append([]byte{pkt[at], uint8(len(data))}, data...)
	block = AppendPadding(block, (old-len(block))&(unit-1))
	size := h.Size + len(block) - old
	if len(data) > maxData || size > MaxExtensionSize || count > MaxOptions {
		return nil, ErrNoSpace
	}
	out, err := splice(pkt, at, h.At+end, block)
	if err != nil {
		return nil, err
	}
	out[h.At+1] = uint8(size/unit - 1)
	return out, nil
}

// padded is where the padding behind the option at offset at ends, and how many options
// the header has with one option of padding there.
func padded(header []byte, at int) (end, count int, err error) {
	for o, err := range Options(header) {
		switch {
		case err != nil:
			return 0, 0, err
		case o.At == at && !o.IsPadding():
			end = o.At + o.Size
			count += 2
		case o.At == end && o.IsPadding():
			end += o.Size
		default:
			count++
		}
	}
	if end == 0 {
		return 0, 0, errorAt(at, ErrNoOption)
	}
	return end, count, nil
}
