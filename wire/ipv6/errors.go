package ipv6

import (
	"errors"
	"fmt"
)

// Errors of reading. Where the place is known, the error is an [*Error] that wraps
// one of these.
var (
	ErrNotIPv6    = errors.New("ipv6: not an IPv6 packet")
	ErrTruncated  = errors.New("ipv6: packet truncated")
	ErrMalformed  = errors.New("ipv6: malformed extension header")
	ErrTooComplex = errors.New("ipv6: too many extension headers or options")
)

// Errors of [Insert] and [Remove] about well-formed packets.
var (
	ErrFragment      = errors.New("ipv6: packet is a fragment")
	ErrAuthenticated = errors.New("ipv6: packet carries AH, which covers extension headers")
	ErrJumbogram     = errors.New("ipv6: payload length is 0: a jumbogram or an empty packet")
	ErrTooLong       = errors.New("ipv6: payload would exceed 65535 bytes")
	ErrNoSpace       = errors.New("ipv6: no space for another option in the header")
	ErrNoOption      = errors.New("ipv6: no option at this offset")
)

// ErrSkipRest is returned by the function given to [WalkFunc] to end the walk before
// the header it was called for. It is not reported as an error.
var ErrSkipRest = errors.New("ipv6: skip the rest of the headers")

// Error is an error and where in the input it is.
type Error struct {
	Offset int // bytes from the start of the slice that was read
	Err    error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%v, at byte %d", e.Err, e.Offset) }

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

func errorAt(offset int, err error) error { return &Error{Offset: offset, Err: err} }
