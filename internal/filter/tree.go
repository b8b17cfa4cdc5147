package filter

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
)

// Node is a part of the syntax tree of a filter: Or, And, Not or Test. The tree is
// for engines that match records elsewhere, such as a database: see Filter.Tree.
type Node interface{ isNode() }

type (
	// Or is true when one of its parts is; without parts it is false.
	Or []Node
	// And is true when all of its parts are; without parts it is true.
	And []Node
	// Not is true when its part is not, even where the part tests a missing value.
	Not struct{ Node }

	// Test compares one column of a record with one value. It is false where the
	// value is missing (flow.Field.Missing; in SQL, NULL). What JSON leaves out for
	// other reasons is 0, empty or false.
	Test struct {
		Field *flow.Field
		Op    Op
		// Of a number, a name (by its index in Field.Values), a protocol or bits. High
		// is of OpBetween alone.
		Low, High uint64
		Mask      uint64       // the bits of the column that are compared; 0: all
		Text      string       // of OpIs the text, of OpMatch a regular expression (RE2)
		Prefix    netip.Prefix // of OpWithin
	}
)

func (Or) isNode()   {}
func (And) isNode()  {}
func (Not) isNode()  {}
func (Test) isNode() {}

// Op is how a test compares.
type Op uint8

const (
	OpEqual          Op = iota // the number Low
	OpBetween                  // Low and High included
	OpLess                     // than Low
	OpLessOrEqual              //
	OpGreater                  //
	OpGreaterOrEqual           //
	OpAllBits                  // all bits of Low are set
	OpIs                       // the text
	OpMatch                    // the whole text matches the regular expression
	OpWithin                   // an address of the prefix
	OpTrue                     // the flag is set
	OpPresent                  // the value is not missing
)

// column is one of a field's columns: all of it, or the bits of mask, shift up.
type column struct {
	of    *flow.Field
	mask  uint64
	shift uint
}

var (
	isTCP  = equal("proto", 6)
	isICMP = Or{And{equal("proto", 1), equal("family", 4)}, And{equal("proto", 58), equal("family", 6)}}
)

func equal(name string, value uint64) Test {
	return Test{Field: flow.FieldNamed(name), Op: OpEqual, Low: value, High: value}
}

// Tree is the filter as tests of columns, each with one value: names, lists, ranges
// and fields that no record has are resolved. Nil: every record matches.
func (f Filter) Tree() Node {
	if f.root == nil {
		return nil
	}
	return f.root.tree()
}

func (list or) tree() Node  { return Or(trees(list)) }
func (list and) tree() Node { return And(trees(list)) }
func (n not) tree() Node    { return Not{n.node.tree()} }

func trees(list []node) []Node {
	out := make([]Node, len(list))
	for i, n := range list {
		out[i] = n.tree()
	}
	return out
}

func (t test) tree() Node {
	var any Or
	for _, c := range t.field.columns {
		if t.field.kind == kindFlag {
			any = append(any, Test{Field: c.of, Op: flagOp(c.of)})
		}
		for i := range t.values {
			any = append(any, t.column(c, &t.values[i]))
		}
	}
	var n Node = any
	if len(any) == 1 {
		n = any[0]
	}
	if t.field.only != nil {
		n = And{t.field.only, n}
	}
	if t.op == "!=" {
		return Not{n}
	}
	return n
}

// flagOp is OpPresent of a flag that stands for a field that may be missing.
func flagOp(of *flow.Field) Op {
	if of.Kind == flow.Flag {
		return OpTrue
	}
	return OpPresent
}

var orders = map[string]Op{"<": OpLess, "<=": OpLessOrEqual, ">": OpGreater, ">=": OpGreaterOrEqual}

// column is the test of one column with one value.
func (t test) column(c column, v *value) Test {
	n := Test{Field: c.of, Mask: c.mask, Low: v.low << c.shift, High: v.high << c.shift, Text: v.text, Prefix: v.prefix}
	order, ordered := orders[t.op]
	switch {
	case t.field.kind == kindText && strings.ContainsAny(v.text, `*?[\`):
		n.Op, n.Text = OpMatch, globRegexp(v.text)
	case t.field.kind == kindText:
		n.Op = OpIs
	case t.field.kind == kindAddress:
		n.Op = OpWithin
	case t.field.kind == kindBits && v.low != 0:
		n.Op = OpAllBits
	case ordered:
		n.Op = order
	case v.low != v.high:
		n.Op = OpBetween
	}
	return n
}

// globRegexp is a pattern of path.Match, which was checked, as a regular expression.
func globRegexp(glob string) string {
	var b strings.Builder
	b.WriteString(`^`)
	runes := []rune(glob)
	for i := 0; i < len(runes); i++ {
		switch c := runes[i]; c {
		case '*':
			b.WriteString(`[^/]*`)
		case '?':
			b.WriteString(`[^/]`)
		case '\\':
			i++
			b.WriteString(regexp.QuoteMeta(string(runes[i])))
		case '[':
			end := i + 1 + classEnd(runes[i+1:])
			b.WriteString(classRegexp(runes[i+1 : end]))
			i = end
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	b.WriteString(`$`)
	return b.String()
}

// classEnd is where the bracket that ends a class stands.
func classEnd(class []rune) int {
	for i := 0; i < len(class); i++ {
		switch {
		case class[i] == '\\':
			i++
		case class[i] == ']':
			return i
		}
	}
	return len(class)
}

// classRegexp writes a class with all that has a meaning in regular expressions
// escaped.
func classRegexp(class []rune) string {
	var b strings.Builder
	b.WriteByte('[')
	if len(class) > 0 && class[0] == '^' {
		b.WriteByte('^')
		class = class[1:]
	}
	for i := 0; i < len(class); i++ {
		c := class[i]
		switch {
		case c == '-' && i > 0:
			b.WriteByte('-')
			continue
		case c == '\\':
			i++
			c = class[i]
		}
		switch c {
		case '-':
			b.WriteString(`\x2d`) // not all engines know \-
			continue
		case '\\', '[', ']', '^':
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	b.WriteByte(']')
	return b.String()
}

// MapPrefixes is the filter with other addresses and prefixes in the same tests.
func (f Filter) MapPrefixes(to func(netip.Prefix) netip.Prefix) Filter {
	if f.root == nil {
		return f
	}
	return Filter{mapPrefixes(f.root, to)}
}

func mapPrefixes(n node, to func(netip.Prefix) netip.Prefix) node {
	each := func(list []node) []node {
		out := make([]node, len(list))
		for i, one := range list {
			out[i] = mapPrefixes(one, to)
		}
		return out
	}
	switch n := n.(type) {
	case or:
		return or(each(n))
	case and:
		return and(each(n))
	case not:
		return not{mapPrefixes(n.node, to)}
	case test:
		if n.field.kind == kindAddress {
			n.values = slices.Clone(n.values)
			for i := range n.values {
				n.values[i].prefix = to(n.values[i].prefix)
			}
		}
		return n
	}
	return n
}
