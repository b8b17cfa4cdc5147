package ipv6

import "iter"

// Options that exist for padding alone (RFC 8200 section 4.2).
const (
	Pad1 = 0 // a single byte, the one option without a length
	PadN = 1
)

const (
	optionHeader = 2 // type and length; also Next Header and Hdr Ext Len
	maxData      = 255

	// Receivers drop packets with longer runs of padding (RFC 8504 section 5.3).
	maxPadding = 7
)

// MaxOptions bounds the options, padding included, that are read in one header.
const MaxOptions = 32

// Option is an option of a Hop-by-Hop or Destination Options header.
type Option struct {
	Type uint8
	At   int    // offset in the header
	Size int    // bytes with type and length
	Data []byte // part of the header that was read
}

// IsPadding reports whether the option is Pad1 or PadN.
func (o Option) IsPadding() bool { return o.Type <= PadN }

// ParseOption reads the option at offset at of a Hop-by-Hop or Destination Options
// header. It fails with [ErrMalformed] where the option exceeds the header.
func ParseOption(header []byte, at int) (Option, error) {
	if at < optionHeader || at >= len(header) {
		return Option{}, errorAt(at, ErrMalformed)
	}
	if header[at] == Pad1 {
		return Option{Type: Pad1, At: at, Size: 1}, nil
	}
	data := at + optionHeader
	if data > len(header) {
		return Option{}, errorAt(at, ErrMalformed)
	}
	end := data + int(header[at+1])
	if end > len(header) {
		return Option{}, errorAt(at+1, ErrMalformed)
	}
	return Option{Type: header[at], At: at, Size: end - at, Data: header[data:end:end]}, nil
}

// Options iterates over the options of the Hop-by-Hop or Destination Options header
// that b starts with, padding included. It ends with an error where the header or
// an option is truncated or malformed, or has more than [MaxOptions].
func Options(b []byte) iter.Seq2[Option, error] {
	return func(yield func(Option, error) bool) {
		e, err := ParseExtension(Destination, b)
		if err == nil && e.Size > len(b) {
			err = errorAt(len(b), ErrTruncated)
		}
		if err != nil {
			yield(Option{}, err)
			return
		}
		for at, n := optionHeader, 0; at < e.Size; n++ {
			o, err := ParseOption(b[:e.Size], at)
			if err == nil && n == MaxOptions {
				err = errorAt(at, ErrTooComplex)
			}
			if !yield(o, err) || err != nil {
				return
			}
			at += o.Size
		}
	}
}

// Align is an alignment requirement xn+y (RFC 8200 section 4.2): the option begins
// at a multiple of X bytes from the start of the header, plus Y. X is 1, 2, 4 or 8;
// the zero value requires nothing.
type Align struct{ X, Y int }

// padding is how many bytes are before an option that would begin at offset at.
func (a Align) padding(at int) int {
	if a.X <= 1 {
		return 0
	}
	return ((a.Y-at)%a.X + a.X) % a.X
}

// TLV is an option to be written.
type TLV struct {
	Type  uint8
	Data  []byte // at most 255 bytes
	Align Align
}

func (o TLV) size() int { return optionHeader + len(o.Data) }

// appendTo appends the option to a header of which at bytes are there already,
// with padding before it for its alignment and behind it up to a multiple of eight.
func (o TLV) appendTo(b []byte, at int) []byte {
	lead := o.Align.padding(at)
	b = AppendPadding(b, lead)
	b = append(b, o.Type, uint8(len(o.Data)))
	b = append(b, o.Data...)
	return AppendPadding(b, -(at+lead+o.size())&(unit-1))
}

// AppendPadding appends n bytes of padding, fewer than eight, as one option.
func AppendPadding(b []byte, n int) []byte {
	switch n {
	case 0:
		return b
	case 1:
		return append(b, Pad1)
	}
	b = append(b, PadN, uint8(n-optionHeader))
	return append(b, make([]byte, n-optionHeader)...)
}

// AppendHeader appends a Hop-by-Hop or Destination Options header with these
// options. next is the protocol number of what follows. It fails with [ErrNoSpace]
// for an option of more than 255 bytes or a header of more than [MaxExtensionSize].
func AppendHeader(b []byte, next uint8, options ...TLV) ([]byte, error) {
	start := len(b)
	b = append(b, next, 0)
	for _, o := range options {
		if len(o.Data) > maxData {
			return nil, ErrNoSpace
		}
		b = AppendPadding(b, o.Align.padding(len(b)-start))
		b = append(b, o.Type, uint8(len(o.Data)))
		b = append(b, o.Data...)
	}
	b = AppendPadding(b, (start-len(b))&(unit-1))
	size := len(b) - start
	if size > MaxExtensionSize {
		return nil, ErrNoSpace
	}
	b[start+1] = uint8(size/unit - 1)
	return b, nil
}
