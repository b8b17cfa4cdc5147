// Package filter is the language in which users say which flows they mean. In
// comes text such as
//
//	proto tcp and dport 443 and src 2001:db8::/32 and packets > 100
//
// and out goes a Filter that tells for each record whether it is meant. The
// store asks it for the command line and the API.
//
// A test is a field, an optional operator (= when left out) and a value, a range
// or a list of them with commas: dport 80,443,8000-8099. Tests join with and, or,
// not and parentheses; not binds tightest, then and.
package filter

import (
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
)

// Filter is a parsed expression. The zero Filter matches every record.
type Filter struct {
	root node
}

// Parse reads an expression; one of nothing but blanks matches every record.
// The error is an *Error.
func Parse(text string) (Filter, error) {
	p := parser{text: text}
	if len(text) > maxText {
		return Filter{}, p.fail(token{pos: maxText, end: maxText}, "more than %d octets", maxText)
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
		return Filter{}, p.fail(p.tok, "join tests with and, or")
	}
	return Filter{root}, nil
}

// Match tells whether the record is meant.
func (f Filter) Match(r *flow.Record) bool { return f.root == nil || f.root.match(r) }

// Empty tells whether every record is meant.
func (f Filter) Empty() bool { return f.root == nil }

// String is the expression in its plainest form; Parse reads it back.
func (f Filter) String() string {
	if f.root == nil {
		return ""
	}
	var b strings.Builder
	f.root.print(&b)
	return b.String()
}
