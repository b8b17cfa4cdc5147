package filter

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/suggest"
)

// maxDepth bounds the nesting of parentheses and not.
const maxDepth = 64

// parser is a recursive descent over
//
//	or   = and { "or" and }
//	and  = not { "and" not }
//	not  = "not" not | "(" or ")" | test
//	test = field [ op ] value { "," value } | shorthand
type parser struct {
	text string
	tok  token
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
			return nil, p.fail(p.tok, "join tests with and, or")
		}
		return n, p.next()
	}
	return p.test()
}

func (p *parser) test() (node, error) {
	name := p.tok
	if name.kind != tokenWord || isKeyword(name.text) {
		return nil, p.fail(name, "a test belongs here, such as dport 443")
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	short, isShort := shorthands[strings.ToLower(name.text)]
	if isShort && !p.valueFollows() {
		return short, nil
	}
	f := fieldNamed(name.text)
	if f == nil {
		if isShort {
			return nil, p.fail(p.tok, "join tests with and, or")
		}
		return nil, p.fail(name, "%s", unknownField(name.text))
	}
	if f.kind == kindFlag {
		return test{field: f, op: "="}, nil
	}
	t := test{field: f, op: "="}
	sign := p.tok
	if sign.kind == tokenOp {
		t.op = sign.text
		if !f.kind.ordered() && t.op != "=" && t.op != "!=" {
			return nil, p.fail(sign, "%s has no order: use = or !=", f.name)
		}
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	return p.values(t, sign)
}

// valueFollows tells a field from a shorthand of the same name.
func (p *parser) valueFollows() bool {
	return p.tok.kind == tokenOp || p.tok.kind == tokenQuoted || p.tok.kind == tokenWord && !isKeyword(p.tok.text)
}

// values reads the right side of a test.
func (p *parser) values(t test, sign token) (node, error) {
	for {
		at := p.tok
		if at.kind != tokenWord && at.kind != tokenQuoted || at.kind == tokenWord && isKeyword(at.text) {
			return nil, p.fail(at, "%s wants a value: %s", t.field.name, t.field.kind.example(t.field))
		}
		v, err := t.field.parse(at.text)
		if err != nil {
			return nil, p.fail(at, "%v", err)
		}
		t.values = append(t.values, v)
		if err := p.next(); err != nil {
			return nil, err
		}
		if t.op != "=" && t.op != "!=" && (v.low != v.high || p.tok.is(",")) {
			return nil, p.fail(sign, "%s goes with one value, not with a range or a list", t.op)
		}
		if !p.tok.is(",") {
			return t, nil
		}
		if err := p.next(); err != nil {
			return nil, err
		}
	}
}

func unknownField(name string) string {
	known := slices.Sorted(maps.Keys(shorthands))
	for i := range fields {
		known = append(append(known, fields[i].name), fields[i].aliases...)
	}
	if near := suggest.Nearest(strings.ToLower(name), known); near != "" {
		return fmt.Sprintf("no field %s: did you mean %s?", name, near)
	}
	var names []string
	for i := range fields {
		names = append(names, fields[i].name)
	}
	return fmt.Sprintf("no field %s: there are %s", name, strings.Join(names, " "))
}
