package pdm

import "github.com/waymark-net/waymark/wire/ipv6"

const protoICMPv6 = 58

// HeaderSize is the size of a Destination Options header that holds one PDM
// option, and what [Insert] adds to a packet.
const HeaderSize = 16

// MaxOptions bounds the options, padding included, that are read in one
// Destination Options header.
const MaxOptions = ipv6.MaxOptions

// AppendHeader appends to b a Destination Options header with option o and the
// padding behind it. next is the protocol number of what follows.
func AppendHeader(b []byte, next uint8, o Option) []byte {
	b = append(b, next, HeaderSize/8-1)
	b = o.AppendTo(b)
	return ipv6.AppendPadding(b, 2)
}

// Header is where a Destination Options header has what concerns PDM.
type Header struct {
	Next     uint8 // protocol number of what follows
	Size     int   // bytes of the whole header
	Option   int   // offset of the PDM option in it, 0: none
	Version2 bool  // it holds a PDMv2 option
	Others   int   // options that are neither PDM nor padding
}

// ParseHeader walks the options of the Destination Options header that b starts
// with. It fails with [ipv6.ErrTruncated], [ipv6.ErrMalformed], [ErrOptionLength],
// [ErrTwice] or [ipv6.ErrTooComplex].
func ParseHeader(b []byte) (Header, error) {
	e, err := ipv6.ParseExtension(ipv6.Destination, b)
	if err != nil {
		return Header{}, err
	}
	h := Header{Next: e.Next, Size: e.Size}
	for o, err := range ipv6.Options(b) {
		switch {
		case err != nil:
			return Header{}, err
		case o.IsPadding():
			continue
		case o.Type != OptionType:
			h.Others++
			continue
		case h.Option != 0 || h.Version2:
			return Header{}, errorAt(o.At, ErrTwice)
		}
		switch len(o.Data) {
		case OptionLength:
			h.Option = o.At
		case version2Length, version2EncryptedLength:
			h.Version2 = true
		default:
			return Header{}, errorAt(o.At+1, ErrOptionLength)
		}
	}
	return h, nil
}

// DecodeHeader returns the PDM option in the Destination Options header that b
// starts with, and the header's layout. In addition to the errors of [ParseHeader] it
// fails with [ErrNone] and [ErrVersion2].
func DecodeHeader(b []byte) (Option, Header, error) {
	h, err := ParseHeader(b)
	switch {
	case err != nil:
		return Option{}, h, err
	case h.Version2:
		return Option{}, h, ErrVersion2
	case h.Option == 0:
		return Option{}, h, ErrNone
	}
	o, err := DecodeOption(b[h.Option:])
	return o, h, err
}
