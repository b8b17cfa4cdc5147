package interval

import (
	"errors"
	"time"
)

// Refused says that the receiver does not take an interval, and that no repetition helps: its records are lost.
type Refused struct {
	Reason string // as it is counted
	Err    error
}

func (r *Refused) Error() string { return r.Err.Error() }

// Unwrap is what the receiver says.
func (r *Refused) Unwrap() error { return r.Err }

// Busy says when the receiver wants to be tried again.
type Busy struct {
	After time.Duration
	Err   error
}

func (b *Busy) Error() string { return b.Err.Error() }

// Unwrap is what the receiver says.
func (b *Busy) Unwrap() error { return b.Err }

// ErrOther says that the receiver has another interval with the identity of this one.
var ErrOther = errors.New("it has other intervals of this run, as after a snapshot of the machine was restored")

var errNone = errors.New("the receiver keeps nothing, and gives no reason")
