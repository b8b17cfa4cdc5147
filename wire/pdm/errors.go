package pdm

import (
	"errors"

	"github.com/waymark-net/waymark/wire/ipv6"
)

// Errors of reading. Where the place is known, the error is an [*Error] that wraps
// one of these.
var (
	ErrOptionLength = errors.New("pdm: option of a length that is neither PDM's nor PDMv2's")
	ErrNone         = errors.New("pdm: no PDM option")
	ErrTwice        = errors.New("pdm: two PDM options in one packet")
	ErrVersion2     = errors.New("pdm: PDMv2 option, which is not supported")
)

// Errors of [Insert] about well-formed packets. Those of package [ipv6] come as they are.
var (
	ErrMarked    = errors.New("pdm: packet already carries a PDM option")
	ErrEncrypted = errors.New("pdm: packet carries ESP: the option belongs inside the ciphertext")
	ErrNeighbor  = errors.New("pdm: packet is neighbor discovery or multicast listener discovery")
)

// Error is an error and where in the input it is.
type Error = ipv6.Error

func errorAt(offset int, err error) error { return &Error{Offset: offset, Err: err} }

// shift moves the place of an error that was found in a part of the packet.
func shift(err error, by int) error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return errorAt(e.Offset+by, e.Err)
	}
	return err
}
