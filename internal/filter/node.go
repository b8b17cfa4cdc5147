package filter

import (
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
)

// node is a part of an expression.
type node interface {
	match(*flow.Record) bool
	print(*strings.Builder)
	tree() Node
}

type (
	or  []node
	and []node
	not struct{ node }

	// test compares a field with values: true when any of them fits.
	test struct {
		field  *field
		op     string
		values []value
	}
)

func (list or) match(r *flow.Record) bool {
	for _, n := range list {
		if n.match(r) {
			return true
		}
	}
	return false
}

func (list and) match(r *flow.Record) bool {
	for _, n := range list {
		if !n.match(r) {
			return false
		}
	}
	return true
}

func (n not) match(r *flow.Record) bool { return !n.node.match(r) }

func (t test) match(r *flow.Record) bool {
	if t.op == "!=" {
		return !t.any(r)
	}
	return t.any(r)
}

func (t test) any(r *flow.Record) bool {
	switch t.field.kind {
	case kindFlag:
		return t.field.flag(r)
	case kindText:
		return t.anyText(t.field.text(r))
	case kindAddress:
		a, b := t.field.addresses(r)
		for i := range t.values {
			if t.values[i].prefix.Contains(a) || t.values[i].prefix.Contains(b) {
				return true
			}
		}
		return false
	}
	a, b, n := t.field.numbers(r)
	if t.field.signed && int64(a) < 0 { // no value is
		return n > 0 && (t.op == "<" || t.op == "<=")
	}
	return n > 0 && t.anyNumber(a) || n > 1 && t.anyNumber(b)
}

func (t test) anyText(s string) bool {
	for i := range t.values {
		if t.values[i].matchText(s) {
			return true
		}
	}
	return false
}

func (t test) anyNumber(n uint64) bool {
	for i := range t.values {
		v := &t.values[i]
		switch {
		case t.field.kind == kindBits:
			if n&v.low == v.low && (v.low != 0 || n == 0) {
				return true
			}
		case t.op == "<" && n < v.low,
			t.op == "<=" && n <= v.low,
			t.op == ">" && n > v.low,
			t.op == ">=" && n >= v.low,
			(t.op == "=" || t.op == "!=") && v.low <= n && n <= v.high:
			return true
		}
	}
	return false
}

func (list or) print(b *strings.Builder)  { printList(b, list, " or ") }
func (list and) print(b *strings.Builder) { printList(b, list, " and ") }

func printList(b *strings.Builder, list []node, sign string) {
	for i, n := range list {
		if i > 0 {
			b.WriteString(sign)
		}
		_, isAnd := n.(and)
		printIn(b, n, isAnd && sign == " or ")
	}
}

func (n not) print(b *strings.Builder) {
	b.WriteString("not ")
	printIn(b, n.node, false)
}

// printIn puts lists in parentheses unless they bind tighter than what is around.
func printIn(b *strings.Builder, n node, tighter bool) {
	switch n.(type) {
	case or, and:
		if !tighter {
			b.WriteByte('(')
			n.print(b)
			b.WriteByte(')')
			return
		}
	}
	n.print(b)
}

func (t test) print(b *strings.Builder) {
	b.WriteString(t.field.name)
	if t.field.kind == kindFlag {
		return
	}
	b.WriteByte(' ')
	if t.op != "=" {
		b.WriteString(t.op + " ")
	}
	for i, v := range t.values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(word(t.field.format(v)))
	}
}
