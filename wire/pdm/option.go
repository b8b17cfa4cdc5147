package pdm

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/waymark-net/waymark/wire/ipv6"
)

// Sizes and numbers of the option (RFC 8250 section 3.2).
const (
	OptionType   = 0x0F // the two highest bits 00: a node that does not know it skips it
	OptionLength = 10   // Opt Data Len
	OptionSize   = 12   // bytes with type and length

	// Opt Data Len of the two forms of PDMv2, which shares the option type.
	version2Length          = 0x12
	version2EncryptedLength = 0x22
)

// Option is the content of one PDM option. The zero value is what the first
// packet of a sender carries when its sequence starts at 0.
type Option struct {
	PSNTP     uint16 // packet sequence number of this packet
	PSNLR     uint16 // PSNTP of the packet last received, 0 before any
	ScaleDTLR uint8  // binary places that DeltaTLR was shifted right by
	ScaleDTLS uint8  // likewise for DeltaTLS
	DeltaTLR  uint16 // time since the last packet was received, in 2^ScaleDTLR attoseconds
	DeltaTLS  uint16 // time between the previous packet sent and what followed it, in 2^ScaleDTLS attoseconds
}

// AppendTo appends the twelve bytes of the option to b.
func (o Option) AppendTo(b []byte) []byte {
	b = append(b, OptionType, OptionLength, o.ScaleDTLR, o.ScaleDTLS)
	b = binary.BigEndian.AppendUint16(b, o.PSNTP)
	b = binary.BigEndian.AppendUint16(b, o.PSNLR)
	b = binary.BigEndian.AppendUint16(b, o.DeltaTLR)
	return binary.BigEndian.AppendUint16(b, o.DeltaTLS)
}

// DecodeOption decodes the option that b starts with. It fails with
// [ipv6.ErrTruncated], [ErrNone] for another option type, [ErrVersion2] or
// [ErrOptionLength].
func DecodeOption(b []byte) (Option, error) {
	if len(b) < 2 {
		return Option{}, errorAt(len(b), ipv6.ErrTruncated)
	}
	if b[0] != OptionType {
		return Option{}, errorAt(0, ErrNone)
	}
	switch b[1] {
	case OptionLength:
	case version2Length, version2EncryptedLength:
		return Option{}, errorAt(0, ErrVersion2)
	default:
		return Option{}, errorAt(1, ErrOptionLength)
	}
	if len(b) < OptionSize {
		return Option{}, errorAt(len(b), ipv6.ErrTruncated)
	}
	return Option{
		ScaleDTLR: b[2],
		ScaleDTLS: b[3],
		PSNTP:     binary.BigEndian.Uint16(b[4:]),
		PSNLR:     binary.BigEndian.Uint16(b[6:]),
		DeltaTLR:  binary.BigEndian.Uint16(b[8:]),
		DeltaTLS:  binary.BigEndian.Uint16(b[10:]),
	}, nil
}

// tlv is the option for package ipv6. RFC 8250 section 3.2 requires no alignment.
func (o Option) tlv() ipv6.TLV {
	return ipv6.TLV{Type: OptionType, Data: o.AppendTo(nil)[2:]}
}

// DTLR is the delta time last received: from the packet that PSNLR names until this
// one was sent. Deltas that exceed a Duration (292 years) are cut to the longest one.
func (o Option) DTLR() time.Duration {
	d, _ := Duration(o.DeltaTLR, o.ScaleDTLR)
	return d
}

// DTLS is the delta time last sent: from the packet sent before this one until the
// answer to it came, or until this one was sent where none did. It is cut as
// [Option.DTLR] is.
func (o Option) DTLS() time.Duration {
	d, _ := Duration(o.DeltaTLS, o.ScaleDTLS)
	return d
}

// HasReceived reports whether the sender had received a packet of the flow before
// it sent this one. A sender that received packet 0 within less than one
// nanosecond looks as if it had not.
func (o Option) HasReceived() bool {
	return o.PSNLR != 0 || o.DeltaTLR != 0 || o.ScaleDTLR != 0
}

// IsFirst reports whether the option says that nothing was sent before: the
// sender's state of this flow is new. A DTLS below 2^16 attoseconds is none: that is
// how a GSO burst says so, because routers require other bits of it to be set.
func (o Option) IsFirst() bool { return o.ScaleDTLS == 0 }

// String is for people: numbers, and deltas as durations.
func (o Option) String() string {
	return fmt.Sprintf("PSNTP %d PSNLR %d DTLR %v DTLS %v", o.PSNTP, o.PSNLR, o.DTLR(), o.DTLS())
}
