package filter

import (
	"slices"
	"strconv"
	"strings"
)

// MaxText bounds an expression, in bytes: filters come over the API, too.
const MaxText = 4096

type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenWord             // a name, number, address, …
	tokenQuoted           // a word that is never a keyword
	tokenOp               // = != < <= > >=
	tokenPunct            // ( ) , and around a list [ ] { }
)

type token struct {
	kind     tokenKind
	text     string // unquoted
	pos, end int
}

// is reports whether the token is the given keyword or sign.
func (t token) is(text string) bool {
	return t.kind != tokenQuoted && t.kind != tokenEnd && strings.EqualFold(t.text, text)
}

const (
	blanks = " \t\r\n"
	// ends are the characters that end a word.
	ends = blanks + `()<>=!,"&|`
)

// signs are the tokens that are not words, the longer ones first.
var signs = []struct {
	text string
	kind tokenKind
	as   string
}{
	{"&&", tokenWord, "and"},
	{"||", tokenWord, "or"},
	{"==", tokenOp, "="},
	{"!=", tokenOp, "!="},
	{"<=", tokenOp, "<="},
	{">=", tokenOp, ">="},
	{"=", tokenOp, "="},
	{"<", tokenOp, "<"},
	{">", tokenOp, ">"},
	{"!", tokenWord, "not"},
	{"(", tokenPunct, "("},
	{")", tokenPunct, ")"},
	{",", tokenPunct, ","},
}

// brackets open and close a list after in; elsewhere they are part of a word,
// such as the pattern eth[01].
var brackets = map[byte]byte{'[': ']', '{': '}'}

// next reads the token after the current one.
func (p *parser) next() error {
	rest := strings.TrimLeft(p.text[p.tok.end:], blanks)
	pos := len(p.text) - len(rest)
	afterIn := p.tok.is("in")
	p.tok = token{kind: tokenEnd, pos: pos, end: pos}
	if rest == "" {
		return nil
	}
	for _, s := range signs {
		if strings.HasPrefix(rest, s.text) {
			p.tok = token{s.kind, s.as, pos, pos + len(s.text)}
			return nil
		}
	}
	if _, opens := brackets[rest[0]]; opens && afterIn || p.closing != 0 && rest[0] == p.closing {
		p.tok = token{tokenPunct, rest[:1], pos, pos + 1}
		return nil
	}
	if rest[0] == '"' {
		return p.quoted(rest, pos)
	}
	n := strings.IndexAny(rest, ends)
	if n < 0 {
		n = len(rest)
	}
	if p.closing != 0 {
		n = unclosed(rest[:n], p.closing)
	}
	if n == 0 {
		return p.fail(token{pos: pos, end: pos + 1}, "unexpected %q: write %s", rest[:1], strings.Repeat(rest[:1], 2))
	}
	p.tok = token{tokenWord, rest[:n], pos, pos + n}
	return nil
}

func (p *parser) quoted(rest string, pos int) error {
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return p.fail(token{pos: pos, end: pos + 1}, "this quote is never closed")
	}
	text, err := strconv.Unquote(quoted)
	if err != nil {
		return p.fail(token{pos: pos, end: pos + len(quoted)}, "invalid quoted text")
	}
	p.tok = token{tokenQuoted, text, pos, pos + len(quoted)}
	return nil
}

// unclosed is where a word in a list ends: before a bracket that it did not open.
func unclosed(word string, closing byte) int {
	depth := 0
	for i := range len(word) {
		switch {
		case brackets[word[i]] == closing:
			depth++
		case word[i] == closing && depth == 0:
			return i
		case word[i] == closing:
			depth--
		}
	}
	return len(word)
}

// peek is the nth token after the current one, 1 being the next; an error there
// is an end here, and reported when the parser gets to it.
func (p *parser) peek(n int) token {
	here := p.tok
	defer func() { p.tok = here }()
	for range n {
		if p.next() != nil {
			return token{}
		}
	}
	return p.tok
}

// word writes a value so that the lexer reads it back as one token.
func word(s string) string {
	if s == "" || strings.ContainsAny(s, ends) || isKeyword(s) || strconv.Quote(s) != `"`+s+`"` {
		return strconv.Quote(s)
	}
	return s
}

var keywords = []string{"and", "or", "not", "in"}

func isKeyword(s string) bool { return slices.Contains(keywords, strings.ToLower(s)) }
