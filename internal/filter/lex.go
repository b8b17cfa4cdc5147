package filter

import (
	"strconv"
	"strings"
)

// maxText bounds an expression, in octets: filters come over the API, too.
const maxText = 4096

type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenWord             // a name, number, address, …
	tokenQuoted           // a word that is never a keyword
	tokenOp               // = != < <= > >=
	tokenPunct            // ( ) ,
)

type token struct {
	kind     tokenKind
	text     string // unquoted
	pos, end int
}

// is tells whether the token is the given keyword or sign.
func (t token) is(text string) bool {
	return t.kind != tokenQuoted && t.kind != tokenEnd && t.text == text
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

// next reads the token after the current one.
func (p *parser) next() error {
	rest := strings.TrimLeft(p.text[p.tok.end:], blanks)
	pos := len(p.text) - len(rest)
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
	if rest[0] == '"' {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return p.fail(token{pos: pos, end: pos + 1}, "this quote is never closed")
		}
		text, err := strconv.Unquote(quoted)
		if err != nil {
			return p.fail(token{pos: pos, end: pos + len(quoted)}, "not a quoted text")
		}
		p.tok = token{tokenQuoted, text, pos, pos + len(quoted)}
		return nil
	}
	n := strings.IndexAny(rest, ends)
	if n == 0 {
		return p.fail(token{pos: pos, end: pos + 1}, "%q means nothing here", rest[:1])
	}
	if n < 0 {
		n = len(rest)
	}
	p.tok = token{tokenWord, rest[:n], pos, pos + n}
	return nil
}

// word writes a value so that the lexer reads it back as one token.
func word(s string) string {
	if s == "" || strings.ContainsAny(s, ends) || isKeyword(s) || strconv.Quote(s) != `"`+s+`"` {
		return strconv.Quote(s)
	}
	return s
}

func isKeyword(s string) bool { return s == "and" || s == "or" || s == "not" }
