package config

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	At      string // file:line:column, or the name of a variable or flag
	Key     string // full name of the key; empty when it is not about one
	What    string // what is wrong, with the value that is
	Allowed string // what is allowed instead
}

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.At)
	if p.Key != "" {
		b.WriteString(": " + p.Key)
	}
	b.WriteString(": " + p.What)
	if p.Allowed != "" {
		b.WriteString("; " + p.Allowed)
	}
	return b.String()
}

// Problems are all that is wrong, in the order in which it was read. It is the
// error of Load.
type Problems []Problem

func (p Problems) Error() string {
	if len(p) == 1 {
		return p[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems in the configuration:", len(p))
	for _, one := range p {
		b.WriteString("\n  " + one.String())
	}
	return b.String()
}

// asError avoids the error that is not nil but holds nothing.
func (p Problems) asError() error {
	if len(p) == 0 {
		return nil
	}
	return p
}
