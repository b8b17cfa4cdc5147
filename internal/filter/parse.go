package filter

import (
	"fmt"
	"strings"
)

// maxDepth bounds the nesting of parentheses and not.
const maxDepth = 64

// parser is a recursive descent over
//
//	or    = and { "or" and }
//	and   = not { "and" not }
//	not   = "not" not | "(" or ")" | test
//	test  = [ protocol ] field [ op ] ( value { "," value } | "(" or ")" )
//	      | [ protocol ] field [ "not" ] "in" list
//	      | flag [ ( "=" | "!=" ) ( 0 | 1 ) ]
//	      | value
//	list  = "[" value { [ "," ] value } "]"
//
// A value without a field belongs to the field before it: port 443 or 8080.
type parser struct {
	text    string
	names   Names
	tok     token
	closing byte       // the bracket that ends the list that is being read; 0: none
	carried *qualifier // what a value without a field belongs to; nil: nothing
}

func (p *parser) fail(at token, format string, args ...any) error {
	return &Error{Text: p.text, Pos: at.pos, End: at.end, What: fmt.Sprintf(format, args...)}
}

func (p *parser) or(depth int) (node, error) {
	return p.joined("or", depth, p.and, func(list []node) node { return or(list) })
}

func (p *parser) and(depth int) (node, error) {
	return p.joined("and", depth, p.not, func(list []node) node { return and(list) })
}

// joined reads operands with one keyword between them.
func (p *parser) joined(keyword string, depth int, operand func(int) (node, error), join func([]node) node) (node, error) {
	var list []node
	for {
		n, err := operand(depth)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
		if !p.tok.is(keyword) {
			break
		}
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return join(list), nil
}

func (p *parser) not(depth int) (node, error) {
	if depth > maxDepth {
		return nil, p.fail(p.tok, "nested more than %d deep", maxDepth)
	}
	switch {
	case p.tok.is("not"):
		if err := p.next(); err != nil {
			return nil, err
		}
		n, err := p.not(depth + 1)
		if err != nil {
			return nil, err
		}
		return not{n}, nil
	case p.tok.is("("):
		return p.group(depth)
	}
	return p.test(depth)
}

// group reads an expression in parentheses.
func (p *parser) group(depth int) (node, error) {
	open := p.tok
	if err := p.next(); err != nil {
		return nil, err
	}
	n, err := p.or(depth + 1)
	if err != nil {
		return nil, err
	}
	if !p.tok.is(")") {
		if p.tok.kind == tokenEnd {
			return nil, p.fail(open, "this parenthesis is never closed")
		}
		return nil, p.failJoin()
	}
	return n, p.next()
}

// failJoin reports something that stands directly behind a test.
func (p *parser) failJoin() error {
	before := strings.TrimRight(p.text[:p.tok.pos], blanks)
	digit := before != "" && '0' <= before[len(before)-1] && before[len(before)-1] <= '9'
	switch {
	case p.tok.is(")"):
		return p.fail(p.tok, "unexpected ): no parenthesis is open")
	case p.tok.is("mask"):
		return p.fail(p.tok, "write the length of the prefix, such as net 10.0.0.0/8")
	case digit && isUnit(p.tok.text):
		return p.fail(p.tok, "write the unit without a blank before it, such as 10%s", p.tok.text)
	case p.tok.kind == tokenOp:
		return p.fail(p.tok, `unexpected %s: write one field, one operator and one value, such as bytes > 1M`, p.tok.text)
	}
	return p.fail(p.tok, `expected "and" or "or" before %s`, p.text[p.tok.pos:p.tok.end])
}
