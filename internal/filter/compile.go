package filter

import (
	"net/netip"
	"regexp"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
)

// Target is something that a filter compiles to: what the parts of its tree become. Records,
// SQL and (in package disk) columns are targets.
type Target[T any] struct {
	Or, And func([]T) T // without parts: false, true
	Not     func(T) T
	Test    func(*Test) T
}

// Compile turns a filter into a target. A filter that matches every record becomes And of nothing.
func Compile[T any](f Filter, to Target[T]) T {
	if f.Empty() {
		return to.And(nil)
	}
	return compile(f.Tree(), to)
}

func compile[T any](n Node, to Target[T]) T {
	list := func(nodes []Node) []T {
		parts := make([]T, len(nodes))
		for i := range nodes {
			parts[i] = compile(nodes[i], to)
		}
		return parts
	}
	switch n := n.(type) {
	case Or:
		return to.Or(list(n))
	case And:
		return to.And(list(n))
	case Not:
		return to.Not(compile(n.Node, to))
	}
	t := n.(Test)
	return to.Test(&t)
}

// Predicate reports whether a record is meant.
type Predicate func(*flow.Record) bool

// Records is the target of records. It matches as Filter.Match does, from the tree.
func Records() Target[Predicate] {
	return Target[Predicate]{
		Or: func(list []Predicate) Predicate {
			return func(r *flow.Record) bool {
				return slices.ContainsFunc(list, func(p Predicate) bool { return p(r) })
			}
		},
		And: func(list []Predicate) Predicate {
			return func(r *flow.Record) bool {
				return !slices.ContainsFunc(list, func(p Predicate) bool { return !p(r) })
			}
		},
		Not:  func(p Predicate) Predicate { return func(r *flow.Record) bool { return !p(r) } },
		Test: func(t *Test) Predicate { return t.predicate() },
	}
}

func (t *Test) predicate() Predicate {
	f := t.Field
	match := func(r *flow.Record) bool { return true }
	switch number, text, address := t.Number(), t.String(), t.Address(); {
	case t.Op == OpPresent:
	case f.Str != nil:
		match = func(r *flow.Record) bool { return text(f.Str(r)) }
	case f.Addr != nil:
		match = func(r *flow.Record) bool { return address(f.Addr(r)) }
	default:
		match = func(r *flow.Record) bool { return number(f.Uint(r)) }
	}
	return func(r *flow.Record) bool { return (f.Missing == nil || !f.Missing(r)) && match(r) }
}

// Number compares a number that is not missing.
func (t *Test) Number() func(uint64) bool {
	low, high, mask := t.Low, t.High, t.Mask
	if mask == 0 {
		mask = ^uint64(0)
	}
	compare := map[Op]func(n uint64) bool{
		OpEqual:          func(n uint64) bool { return n == low },
		OpBetween:        func(n uint64) bool { return low <= n && n <= high },
		OpLess:           func(n uint64) bool { return n < low },
		OpLessOrEqual:    func(n uint64) bool { return n <= low },
		OpGreater:        func(n uint64) bool { return n > low },
		OpGreaterOrEqual: func(n uint64) bool { return n >= low },
		OpAllBits:        func(n uint64) bool { return n&low == low },
		OpTrue:           func(n uint64) bool { return n != 0 },
		OpPresent:        func(uint64) bool { return true },
	}[t.Op]
	if t.Field.Kind == flow.Signed { // no value is below 0
		below := t.Op == OpLess || t.Op == OpLessOrEqual || t.Op == OpPresent
		return func(n uint64) bool {
			if int64(n) < 0 {
				return below
			}
			return compare(n)
		}
	}
	return func(n uint64) bool { return compare(n & mask) }
}

// String compares a text.
func (t *Test) String() func(string) bool {
	switch t.Op {
	case OpIs:
		return func(s string) bool { return s == t.Text }
	case OpMatch:
		return regexp.MustCompile(`(?s:` + t.Text + `)`).MatchString
	}
	return nil
}

// Address compares an address that is not missing.
func (t *Test) Address() func(netip.Addr) bool { return t.Prefix.Contains }

// flowFields are those that all records of the same packets have in common, wherever they were
// seen.
var flowFields = []string{"family", "proto", "src", "sport", "dst", "dport", "icmp_type", "icmp_code", "unattributed"}

// TestsPlaces reports whether the filter may match some records of a packet, and not others
// from further interfaces.
func (f Filter) TestsPlaces() bool {
	any := func(list []bool) bool { return slices.Contains(list, true) }
	return Compile(f, Target[bool]{
		Or: any, And: any, Not: func(b bool) bool { return b },
		Test: func(t *Test) bool { return !slices.Contains(flowFields, t.Field.Name) },
	})
}

// Fields are the fields that the filter tests.
func (f Filter) Fields() (list []*flow.Field) {
	none := func([]bool) bool { return false }
	Compile(f, Target[bool]{Or: none, And: none, Not: func(b bool) bool { return b }, Test: func(t *Test) bool {
		if !slices.Contains(list, t.Field) {
			list = append(list, t.Field)
		}
		return false
	}})
	return list
}
