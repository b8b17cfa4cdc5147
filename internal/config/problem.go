package config

import (
	"fmt"
	"slices"
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

// apartFrom are those of others that do not follow from p: where a value could not be read, its default is what later
// checks see. What is not about a key may be the cause of anything.
func (p Problems) apartFrom(others Problems) (apart Problems) {
	for _, other := range others {
		if !slices.ContainsFunc(p, func(one Problem) bool {
			around := one.Key[:max(strings.LastIndexByte(one.Key, '.'), 0)]
			return strings.HasPrefix(other.Key, around) || strings.Contains(other.What+other.Allowed, around)
		}) {
			apart = append(apart, other)
		}
	}
	return apart
}

// asError avoids the error that is not nil but holds nothing.
func (p Problems) asError() error {
	if len(p) == 0 {
		return nil
	}
	return p
}
