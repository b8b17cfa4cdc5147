package filter

import (
	"fmt"
	"strings"
)

// qualifier is the left side of a test.
type qualifier struct {
	typed  string   // as the user wrote it
	fields []*field // of one kind; two: both must fit
	under  node     // a protocol or IP version that stands in front; nil: none
	op     string
}

// node is a test of the qualifier with values.
func (q *qualifier) node(values []value) node {
	var list and
	if q.under != nil {
		list = append(list, q.under)
	}
	for _, f := range q.fields {
		list = append(list, test{field: f, op: q.op, values: values})
	}
	if len(list) == 1 {
		return list[0]
	}
	return list
}

const wantTest = "expected a test, such as dport 443"

// test reads what stands between and, or and not.
func (p *parser) test(depth int) (node, error) {
	if p.tok.kind != tokenWord || isKeyword(p.tok.text) {
		return nil, p.fail(p.tok, wantTest)
	}
	p.splitDotted()
	q := &qualifier{op: "="}
	if s, ok := shorthands[strings.ToLower(p.tok.text)]; ok && !p.isFieldWithValue() {
		name := p.tok
		if err := p.next(); err != nil {
			return nil, err
		}
		fields, _ := p.phrase()
		if !s.leads || len(fields) == 0 || fields[0].kind == kindFlag {
			return p.flag(name, s.node)
		}
		q.under, q.typed = s.node, name.text+" "
	}
	fields, words := p.phrase()
	if len(fields) == 0 {
		return p.bare()
	}
	begin, end := p.tok, 0
	for range words {
		end = p.tok.end
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	q.fields = fields
	q.typed += strings.Join(strings.Fields(p.text[begin.pos:end]), " ")
	if fields[0].kind == kindFlag {
		return p.flag(begin, test{field: fields[0], op: "="})
	}
	return p.compare(q, depth)
}

// splitDotted reads tcp.port and ip.src, as Wireshark has them, as two words.
func (p *parser) splitDotted() {
	if _, known := shorthands[strings.ToLower(p.tok.text)]; known {
		return
	}
	if _, known := phrases[strings.ToLower(p.tok.text)]; known {
		return
	}
	left, right, ok := strings.Cut(p.tok.text, ".")
	_, isField := phrases[strings.ToLower(right)]
	if s := shorthands[strings.ToLower(left)]; ok && s.leads && isField {
		p.tok.text, p.tok.end = left, p.tok.pos+len(left)+1 // the dot goes, too
	}
}

// phrase finds the longest name of a field that begins with the current token,
// and of how many words it is.
func (p *parser) phrase() (fields []*field, words int) {
	name := ""
	for n := range maxWords {
		t := p.tok
		if n > 0 {
			t = p.peek(n)
		}
		if t.kind != tokenWord {
			break
		}
		name = strings.TrimPrefix(name+" "+strings.ToLower(t.text), " ")
		if found, ok := phrases[name]; ok {
			fields, words = found, n+1
		}
	}
	return fields, words
}

// isFieldWithValue tells a field from a shorthand of the same name: vlan 100
// from vlan.
func (p *parser) isFieldWithValue() bool {
	if _, ok := phrases[strings.ToLower(p.tok.text)]; !ok {
		return false
	}
	next := p.peek(1)
	if next.kind == tokenOp || next.kind == tokenQuoted || next.is("(") || next.is("in") {
		return true
	}
	if next.is("not") {
		return p.peek(2).is("in")
	}
	_, short := shorthands[strings.ToLower(next.text)]
	_, starts := firstWords[strings.ToLower(next.text)]
	return next.kind == tokenWord && !isKeyword(next.text) && !short && !starts
}

// flag reads what may follow a test without a value: = 1, = 0.
func (p *parser) flag(name token, n node) (node, error) {
	if p.tok.kind != tokenOp {
		return n, nil
	}
	op := p.tok
	if err := p.next(); err != nil {
		return nil, err
	}
	truth, ok := map[string]bool{"1": true, "true": true, "0": false, "false": false}[strings.ToLower(p.tok.text)]
	if !ok || op.text != "=" && op.text != "!=" {
		return nil, p.fail(op, "%s is true or false: write %s, or not %s", name.text, name.text, name.text)
	}
	if truth != (op.text == "=") {
		n = not{n}
	}
	return n, p.next()
}

// compare reads the right side of a test.
func (p *parser) compare(q *qualifier, depth int) (node, error) {
	sign := p.tok
	switch {
	case sign.is("("):
		p.carried = q
		n, err := p.group(depth + 1)
		p.carried = q
		return n, err
	case p.isValueIn(q.fields[0]):
	case sign.is("in"), sign.is("not") && p.peek(1).is("in"):
		return p.in(q)
	case sign.kind == tokenOp:
		q.op = sign.text
		if !q.fields[0].kind.ordered() && q.op != "=" && q.op != "!=" {
			return nil, p.fail(sign, "%s has no order: use = or !=", q.typed)
		}
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	if q.op == "=" {
		p.carried = q
	} else {
		p.carried = nil
	}
	return p.values(q, sign)
}

// isValueIn reports whether the current word is the direction in, not the
// keyword: nothing that it could be a list of comes behind it.
func (p *parser) isValueIn(f *field) bool {
	if f.name != "direction" || !p.tok.is("in") {
		return false
	}
	next := p.peek(1)
	return next.kind == tokenEnd || next.is(",") || next.is(")") || p.closing != 0 || next.kind == tokenWord && isKeyword(next.text)
}

// in reads a list in brackets, or one without.
func (p *parser) in(q *qualifier) (node, error) {
	if p.tok.is("not") {
		q.op = "!="
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	in := p.tok
	if err := p.next(); err != nil {
		return nil, err
	}
	p.carried = nil
	open := p.tok
	if open.kind != tokenPunct || open.text == "," {
		return p.values(q, in)
	}
	closing := ")"
	if b, ok := brackets[open.text[0]]; ok {
		p.closing, closing = b, string(b)
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	var values []value
	for more := true; !p.tok.is(closing) || len(values) == 0; {
		if p.tok.kind == tokenEnd && !more {
			return nil, p.fail(open, "this list is never closed: write it like %s in [1, 2]", q.typed)
		}
		v, err := p.value(q)
		if err != nil {
			return nil, err
		}
		values = append(values, v...)
		if more = p.tok.is(","); more {
			if err := p.next(); err != nil {
				return nil, err
			}
		}
	}
	p.closing = 0
	return q.node(values), p.next()
}

// values reads a list with commas.
func (p *parser) values(q *qualifier, sign token) (node, error) {
	var values []value
	for {
		v, err := p.value(q)
		if err != nil {
			return nil, err
		}
		values = append(values, v...)
		if q.op != "=" && q.op != "!=" && (v[0].low != v[0].high || p.tok.is(",")) {
			return nil, p.fail(sign, "%s takes one value, not a range or a list", q.op)
		}
		if !p.tok.is(",") {
			return q.node(values), nil
		}
		if err := p.next(); err != nil {
			return nil, err
		}
	}
}

// value reads one value, which is several where a name stands for them.
func (p *parser) value(q *qualifier) ([]value, error) {
	at := p.tok
	f := q.fields[0]
	if at.kind != tokenWord && at.kind != tokenQuoted || at.kind == tokenWord && isKeyword(at.text) && !p.isValueIn(f) {
		what := fmt.Sprintf("expected a value after %s: %s", q.typed, f.kind.example(f))
		return nil, &Error{Text: p.text, Pos: at.pos, End: at.end, What: what, wants: f}
	}
	v, err := p.parseValue(q, at.text)
	if err != nil {
		return nil, p.fail(at, "%s %s: %v", q.typed, word(at.text), err)
	}
	return v, p.next()
}

// parseValue reads the text of a value, with names where the field has some.
func (p *parser) parseValue(q *qualifier, text string) ([]value, error) {
	f := q.fields[0]
	switch {
	case f.kind == kindAddress:
		return p.parseAddress(q, text)
	case f.services:
		v, err := p.parsePort(f, text)
		return []value{v}, err
	}
	v, err := f.parse(text)
	return []value{v}, err
}

// bare reads a value that stands without a field.
func (p *parser) bare() (node, error) {
	at, q := p.tok, p.carried
	switch {
	case isAddress(at.text):
		if q == nil || q.fields[0].kind != kindAddress {
			q = &qualifier{typed: "host", fields: phrases["host"], op: "="}
			p.carried = q
		}
		return p.values(q, at)
	case q == nil, !p.mayCarry(q):
		return nil, p.unknown(at)
	}
	n, err := p.values(q, at)
	if err != nil && isName(at.text) && nearestWord(at.text) != "" {
		return nil, p.unknown(at) // rather a word misspelt than a name
	}
	return n, err
}

// mayCarry reports whether the current word can be a value of the field before.
func (p *parser) mayCarry(q *qualifier) bool {
	f, text := q.fields[0], p.tok.text
	next := p.peek(1)
	if next.kind != tokenEnd && next.kind != tokenPunct && !next.is("and") && !next.is("or") {
		return false
	}
	if isName(text) {
		return f.services || f.kind == kindAddress && p.names.Hosts != nil
	}
	return '0' <= text[0] && text[0] <= '9'
}
