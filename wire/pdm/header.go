package pdm

// IANA protocol numbers of what a walk meets.
const (
	protoHopByHop      = 0
	protoRouting       = 43
	protoFragment      = 44
	protoESP           = 50
	protoAH            = 51
	protoICMPv6        = 58
	protoDestination   = 60
	optionPad1         = 0
	optionPadN         = 1
	optionTypeSize     = 2 // type and length of an option, Next Header and Hdr Ext Len of a header
	extUnit            = 8
	maxHeaderSize      = 256 * extUnit
	fragmentHeaderSize = 8
)

// HeaderSize is the size of a Destination Options header that holds one PDM
// option, and what [Insert] adds to a packet.
const HeaderSize = 16

// MaxOptions bounds the options, padding included, that are walked in one
// Destination Options header. A Linux receiver takes no more than eight, each
// with padding around it.
const MaxOptions = 32

// AppendHeader appends to b a Destination Options header with option o and the
// padding behind it. next is the protocol number of what follows.
func AppendHeader(b []byte, next uint8, o Option) []byte {
	b = append(b, next, HeaderSize/extUnit-1)
	b = o.AppendTo(b)
	return append(b, optionPadN, 0)
}

// Header is where a Destination Options header has what concerns PDM.
type Header struct {
	Next     uint8 // protocol number of what follows
	Size     int   // octets of the whole header
	Option   int   // offset of the PDM option in it, 0: none
	Version2 bool  // it holds a PDMv2 option
	Others   int   // options that are neither PDM nor padding

	options int // all of them
}

// ParseHeader walks the options of the Destination Options header that b starts
// with. It fails with [ErrTruncated], [ErrMalformed], [ErrOptionLength],
// [ErrTwice] or [ErrTooComplex].
func ParseHeader(b []byte) (Header, error) {
	if len(b) < optionTypeSize {
		return Header{}, errorAt(len(b), ErrTruncated)
	}
	h := Header{Next: b[0], Size: (int(b[1]) + 1) * extUnit}
	if len(b) < h.Size {
		return Header{}, errorAt(len(b), ErrTruncated)
	}
	b = b[:h.Size]
	for at := optionTypeSize; at < len(b); h.options++ {
		if h.options == MaxOptions {
			return Header{}, errorAt(at, ErrTooComplex)
		}
		size, err := tlvSize(b, at)
		if err != nil {
			return Header{}, err
		}
		switch b[at] {
		case optionPad1, optionPadN:
		case OptionType:
			if h.Option != 0 || h.Version2 {
				return Header{}, errorAt(at, ErrTwice)
			}
			switch b[at+1] {
			case OptionLength:
				h.Option = at
			case version2Length, version2EncryptedLength:
				h.Version2 = true
			default:
				return Header{}, errorAt(at+1, ErrOptionLength)
			}
		default:
			h.Others++
		}
		at += size
	}
	return h, nil
}

// tlvSize is the size of the option at offset at of header b.
func tlvSize(b []byte, at int) (int, error) {
	if b[at] == optionPad1 {
		return 1, nil // the one option without a length
	}
	if at+optionTypeSize > len(b) {
		return 0, errorAt(at, ErrMalformed)
	}
	size := optionTypeSize + int(b[at+1])
	if at+size > len(b) {
		return 0, errorAt(at+1, ErrMalformed)
	}
	return size, nil
}

// DecodeHeader returns the PDM option in the Destination Options header that b
// starts with, and the header's layout. Besides the errors of [ParseHeader] it
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
