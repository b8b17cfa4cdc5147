// Package filter is the language in which users say which flows they mean.
// Input: text such as
//
//	tcp dst port 443 and src net 2001:db8::/32 and packets > 100
//
// Output: a Filter that reports for each record whether it matches. Callers:
// store, API, command line, top.
//
// A test is a field, an operator (= when left out) and a value, a range or a list:
// dport 80,443,8000-8099. Tests are joined with and, or, not and parentheses; not
// binds tightest, then and. The expressions of tcpdump that have a meaning for
// flows mean the same here.
package filter

import (
	"net/netip"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
)

// Filter is a parsed expression. The zero Filter matches every record.
type Filter struct {
	root node
}

// Names resolves names in an expression. A nil function knows no name; a number
// or an address never needs it.
type Names struct {
	Hosts    func(name string) ([]netip.Addr, error)
	Services func(name string) (port uint16, err error) // in addition to those that Waymark knows
}

// Parse reads an expression without resolving names of hosts; one of nothing but
// blanks matches every record. The error is an *Error.
func Parse(text string) (Filter, error) { return ParseNames(text, Names{}) }

// ParseNames is Parse for expressions that may name hosts.
func ParseNames(text string, names Names) (Filter, error) {
	p := parser{text: text, names: names}
	if len(text) > MaxText {
		return Filter{}, p.fail(token{pos: MaxText, end: MaxText}, "longer than %d bytes", MaxText)
	}
	if err := p.next(); err != nil {
		return Filter{}, err
	}
	if p.tok.kind == tokenEnd {
		return Filter{}, nil
	}
	root, err := p.or(0)
	if err != nil {
		return Filter{}, err
	}
	if p.tok.kind != tokenEnd {
		return Filter{}, p.failJoin()
	}
	return Filter{root}, nil
}

// Match reports whether the record is meant.
func (f Filter) Match(r *flow.Record) bool { return f.root == nil || f.root.match(r) }

// Empty reports whether every record is meant.
func (f Filter) Empty() bool { return f.root == nil }

// String is the expression in its plainest form, without names; Parse reads it back.
func (f Filter) String() string {
	if f.root == nil {
		return ""
	}
	var b strings.Builder
	f.root.print(&b)
	return b.String()
}
