package ioam

import (
	"errors"
	"fmt"
	"strings"

	"github.com/waymark-net/waymark/wire/ipv6"
)

// What [Option.Decode] finds wrong. Each problem is an [*Error] that wraps one of these.
var (
	ErrKind         = errors.New("ioam: unknown IOAM option type")
	ErrPlace        = errors.New("ioam: option in the wrong extension header")
	ErrAlignment    = errors.New("ioam: option is not aligned")
	ErrLength       = errors.New("ioam: option of the wrong length")
	ErrNodeLen      = errors.New("ioam: NodeLen does not fit Trace-Type")
	ErrRemainingLen = errors.New("ioam: RemainingLen exceeds the option")
	ErrNodeData     = errors.New("ioam: node data list ends inside the data of a node")
	ErrSnapshot     = errors.New("ioam: opaque state snapshot exceeds the option")
	ErrUndefined    = errors.New("ioam: undefined bits are set")
	ErrReserved     = errors.New("ioam: reserved bits are set")
	ErrLoopback     = errors.New("ioam: Loopback flag with another Trace-Type than 800000")
	ErrPOTType      = errors.New("ioam: unknown IOAM POT-Type")
	ErrTwoSequences = errors.New("ioam: both sequence numbers, of 64 and of 32 bits")
)

// Errors of calls. Those of package [ipv6] come as they are.
var (
	ErrRange = errors.New("ioam: value out of range")
	ErrShare = errors.New("ioam: proof of transit profile is impossible")
)

// Error is an error and where in the input it is.
type Error = ipv6.Error

// Problems is everything that is wrong with an option, in the order of its bytes.
type Problems []*Error

// Error implements error.
func (p Problems) Error() string {
	all := make([]string, len(p))
	for i, e := range p {
		all[i] = e.Error()
	}
	return strings.Join(all, "; ")
}

// Unwrap returns all problems, for errors.Is and errors.As.
func (p Problems) Unwrap() []error {
	all := make([]error, len(p))
	for i, e := range p {
		all[i] = e
	}
	return all
}

// err is p as an error: nil where nothing is wrong.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// add notes a problem: what it is, and the values that show it.
func (p *Problems) add(offset int, err error, format string, args ...any) {
	*p = append(*p, &Error{Offset: offset, Err: fmt.Errorf("%w: "+format, append([]any{err}, args...)...)})
}
