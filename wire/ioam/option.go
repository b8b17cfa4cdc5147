package ioam

import (
	"encoding/binary"
	"fmt"

	"github.com/waymark-net/waymark/wire/ipv6"
)

// Option types of IPv6 (RFC 9486 section 3). Nodes that do not know them skip them.
const (
	OptionMutable   = 0x31 // transit nodes change its data
	OptionImmutable = 0x11
)

// Kind is an IOAM-Option-Type (RFC 9197 section 4.1).
type Kind uint8

// The kinds. RFC 9486 does not map incremental traces to IPv6; here they are in a
// Hop-by-Hop Options header with the option type of the pre-allocated ones.
const (
	PreallocatedTrace Kind = iota
	IncrementalTrace
	ProofOfTransit
	EdgeToEdge
	DirectExport
)

var kinds = [...]struct {
	name   string
	option uint8
	header uint8
}{
	PreallocatedTrace: {"pre-allocated trace", OptionMutable, ipv6.HopByHop},
	IncrementalTrace:  {"incremental trace", OptionMutable, ipv6.HopByHop},
	ProofOfTransit:    {"proof of transit", OptionMutable, ipv6.HopByHop},
	EdgeToEdge:        {"edge to edge", OptionImmutable, ipv6.Destination},
	DirectExport:      {"direct export", OptionImmutable, ipv6.HopByHop},
}

// String is the name in the RFCs, in lower case.
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k].name
	}
	return fmt.Sprintf("IOAM option type %d", uint8(k))
}

// Header is the protocol number of the extension header that carries this kind.
func (k Kind) Header() uint8 { return kinds[k].header }

// OptionType is the option type of IPv6 for this kind.
func (k Kind) OptionType() uint8 { return kinds[k].option }

// Sizes of an option. Opt Data Len counts what is behind it.
const (
	headerSize = 4 // Option Type, Opt Data Len, Reserved, IOAM-Opt-Type
	prefixSize = 2 // the last two of these
	maxData    = 255
	unit       = 4 // of lengths in traces
)

// align is that of every IOAM option (RFC 9486 section 3).
var align = ipv6.Align{X: 4}

// Body is the content of an option: a [*Trace], [*POT], [*E2E] or [*DEX].
type Body interface {
	Kind() Kind
	// AppendTo appends the bytes behind IOAM-Opt-Type.
	AppendTo(b []byte) []byte
}

// AppendOption appends the option with this body to b. It fails with [ErrLength]
// for a body of more than 253 bytes.
func AppendOption(b []byte, body Body) ([]byte, error) {
	o, err := tlv(body)
	if err != nil {
		return nil, err
	}
	b = append(b, o.Type, uint8(len(o.Data)))
	return append(b, o.Data...), nil
}

// tlv is the option for package ipv6.
func tlv(body Body) (ipv6.TLV, error) {
	k := body.Kind()
	data := body.AppendTo([]byte{0, uint8(k)})
	if len(data) > maxData {
		return ipv6.TLV{}, fmt.Errorf("%w: %v of %d bytes, and an IPv6 option has at most %d", ErrLength, k, len(data), maxData)
	}
	return ipv6.TLV{Type: k.OptionType(), Data: data, Align: align}, nil
}

// AppendHeader appends an extension header with these options, which must belong into
// one header. next is the protocol number of what follows. In addition to the errors of
// [AppendOption] it fails with [ErrPlace] and [ipv6.ErrNoSpace].
func AppendHeader(b []byte, next uint8, bodies ...Body) ([]byte, error) {
	options := make([]ipv6.TLV, len(bodies))
	for i, body := range bodies {
		if body.Kind().Header() != bodies[0].Kind().Header() {
			return nil, fmt.Errorf("%w: %v and %v in one", ErrPlace, bodies[0].Kind(), body.Kind())
		}
		o, err := tlv(body)
		if err != nil {
			return nil, err
		}
		options[i] = o
	}
	return ipv6.AppendHeader(b, next, options...)
}

// Option is an IOAM option in a packet. Raw may hold any bytes of a TLV with an IOAM
// option type: [Option.Decode] says what is wrong with them.
type Option struct {
	Header uint8  // protocol number of the extension header
	Offset int    // of the option in that header
	At     int    // of the option in the packet
	Raw    []byte // with type and length; part of the packet
}

// Kind returns the IOAM-Option-Type; ok is false where the option is too short.
func (o Option) Kind() (k Kind, ok bool) {
	if len(o.Raw) < headerSize {
		return 0, false
	}
	return Kind(o.Raw[3]), true
}

// Namespace returns the Namespace-ID, which all kinds have at the same place; ok is
// false where the option is too short.
func (o Option) Namespace() (id uint16, ok bool) {
	if len(o.Raw) < headerSize+2 {
		return 0, false
	}
	return binary.BigEndian.Uint16(o.Raw[headerSize:]), true
}

// Decode reads the body of the option. A problem does not end it: the body holds
// what can be read, and the error is [Problems] with all that is wrong. The body is
// nil where the option is too short or its kind unknown. Slices of the body are
// parts of Raw.
func (o Option) Decode() (Body, error) {
	var p Problems
	if o.Offset%unit != 0 {
		p.add(o.At, ErrAlignment, "at byte %d of its header, and a multiple of 4 is required", o.Offset)
	}
	if len(o.Raw) < headerSize {
		p.add(o.At, ErrLength, "Opt Data Len is %d, and IOAM needs at least %d", max(0, len(o.Raw)-2), prefixSize)
		return nil, p.err()
	}
	if r := o.Raw[2]; r != 0 {
		p.add(o.At+2, ErrReserved, "byte before IOAM-Opt-Type is %02X", r)
	}
	k := Kind(o.Raw[3])
	if int(k) >= len(kinds) {
		p.add(o.At+3, ErrKind, "%d", uint8(k))
		return nil, p.err()
	}
	switch {
	case o.Raw[0] != k.OptionType():
		p.add(o.At, ErrKind, "%v with option type %02X, and %02X is its own", k, o.Raw[0], k.OptionType())
	case o.Header != k.Header():
		p.add(o.At, ErrPlace, "%v in a %s header", k, headerName(o.Header))
	}
	r := reader{body: o.Raw[headerSize:], at: o.At + headerSize, problems: &p}
	body := r.read(k)
	return body, p.err()
}

func headerName(proto uint8) string {
	switch proto {
	case ipv6.HopByHop:
		return "Hop-by-Hop Options"
	case ipv6.Destination:
		return "Destination Options"
	}
	return fmt.Sprintf("protocol %d", proto)
}

// DecodeOption decodes the option that b starts with, as if it were at a legal place.
// In addition to [Problems] it fails with [ipv6.ErrTruncated].
func DecodeOption(b []byte) (Body, error) {
	if len(b) < 2 || len(b) < 2+int(b[1]) {
		return nil, &Error{Offset: len(b), Err: ipv6.ErrTruncated}
	}
	o := Option{Raw: b[: 2+int(b[1]) : 2+int(b[1])]}
	if k, ok := o.Kind(); ok && int(k) < len(kinds) {
		o.Header = k.Header()
	}
	return o.Decode()
}

// reader reads a body and notes problems.
type reader struct {
	body     []byte
	at       int // of the body in the packet
	problems *Problems
}

func (r *reader) read(k Kind) Body {
	switch k {
	case ProofOfTransit:
		return orNil(r.pot())
	case EdgeToEdge:
		return orNil(r.e2e())
	case DirectExport:
		return orNil(r.dex())
	}
	return orNil(r.trace(k == IncrementalTrace))
}

// orNil is a nil interface for a nil pointer.
func orNil[T any, P interface {
	*T
	Body
}](p P) Body {
	if p == nil {
		return nil
	}
	return p
}

// has reports whether the body has n bytes, and notes a problem where it has not.
func (r *reader) has(n int, what string) bool {
	if len(r.body) >= n {
		return true
	}
	r.problems.add(r.at+len(r.body), ErrLength, "%s needs %d bytes, and has %d", what, n, len(r.body))
	return false
}

// ends notes a problem where the body goes on behind its n bytes.
func (r *reader) ends(n int, what string) {
	if len(r.body) > n {
		r.problems.add(r.at+n, ErrLength, "unused bytes behind %s: %d", what, len(r.body)-n)
	}
}
