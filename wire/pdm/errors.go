package pdm

import (
	"errors"
	"fmt"
)

// What a decoder finds wrong. Where a place can be named, the error is an
// [*Error] that wraps one of these.
var (
	ErrNotIPv6      = errors.New("not an IPv6 packet")
	ErrTruncated    = errors.New("truncated")
	ErrMalformed    = errors.New("malformed extension header")
	ErrOptionLength = errors.New("PDM option of a length that is neither PDM's nor PDMv2's")
	ErrTooComplex   = errors.New("more extension headers or options than are walked")
	ErrNone         = errors.New("no PDM option")
	ErrTwice        = errors.New("two PDM options in one IPv6 header")
	ErrVersion2     = errors.New("PDMv2 option, which is not supported")
)

// Why a packet that is well formed is left as it is by [Insert] or [Remove].
var (
	ErrMarked        = errors.New("packet already carries a PDM option")
	ErrEncrypted     = errors.New("packet carries ESP: PDM belongs inside the ciphertext")
	ErrAuthenticated = errors.New("packet carries AH, which covers Destination Options")
	ErrFragment      = errors.New("packet is a fragment")
	ErrNeighbor      = errors.New("packet is neighbor discovery or multicast listener discovery")
	ErrJumbogram     = errors.New("payload length is 0: a jumbogram, or nothing to mark")
	ErrNoRoom        = errors.New("no room in the Destination Options header for another option")
	ErrTooLong       = errors.New("payload would exceed 65535 octets")
)

// Error is a decoding error and its place.
type Error struct {
	Offset int // octets from the start of the slice that was decoded
	Err    error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("at octet %d: %v", e.Offset, e.Err) }

// Unwrap returns the sentinel.
func (e *Error) Unwrap() error { return e.Err }

func errorAt(offset int, err error) error { return &Error{Offset: offset, Err: err} }
