package rules

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokenEnd    tokenKind = iota // of the text
	tokenLine                    // of a line
	tokenWord                    // a keyword, name, number, address, …
	tokenQuoted                  // a word that is never a keyword
	tokenSign
)

type token struct {
	kind     tokenKind
	text     string // unquoted
	line     int    // from 1
	from, to int    // bytes of the line
}

// is reports whether the token is the given keyword or sign.
func (t token) is(text string) bool {
	return (t.kind == tokenWord || t.kind == tokenSign) && strings.EqualFold(t.text, text)
}

// ends reports whether nothing more is on the line.
func (t token) ends() bool { return t.kind == tokenEnd || t.kind == tokenLine }

const (
	blanks   = " \t\r\v\f"
	wordEnds = blanks + `{}(),&|=<>!"#;`
)

// signs are the tokens that are not words, the longer ones first.
var signs = []struct{ text, as string }{
	{"&&", "and"},
	{"||", "or"},
	{"==", "="},
	{"!=", "!="},
	{"<=", "<="},
	{">=", ">="},
	{"=", "="},
	{"<", "<"},
	{">", ">"},
	{"!", "not"},
	{"{", "{"},
	{"}", "}"},
	{"(", "("},
	{")", ")"},
	{",", ","},
	{"&", "&"},
	{"|", "|"},
}

// byteOrderMark begins text files of some editors.
const byteOrderMark = "\ufeff"

// source is a text as lines, for errors.
type source struct {
	file  string
	lines []string
}

func newSource(file, text string) source {
	text = strings.ReplaceAll(strings.TrimPrefix(text, byteOrderMark), "\r\n", "\n")
	return source{file, strings.Split(text, "\n")}
}

// position is where a token begins.
func (s *source) position(t token) Position {
	return Position{s.file, t.line, s.column(t, t.from)}
}

func (s *source) column(t token, at int) int {
	return utf8.RuneCountInString(s.lines[t.line-1][:at]) + 1
}

func (s *source) fail(t token, format string, args ...any) *Error {
	for i, arg := range args {
		if word, is := arg.(string); is {
			args[i] = shorten(word)
		}
	}
	return &Error{Pos: s.position(t), What: fmt.Sprintf(format, args...), Line: s.lines[t.line-1], End: s.column(t, t.to)}
}

// lex divides a text into tokens. A line with an error ends before it.
func (s *source) lex() (tokens []token, errs Errors) {
	for i, text := range s.lines {
		at := 0
		for {
			t, err := s.next(text, i+1, at)
			if err != nil {
				errs = append(errs, err)
				t = token{tokenLine, "", i + 1, t.from, t.from}
			}
			tokens = append(tokens, t)
			if t.kind == tokenLine {
				break
			}
			at = t.to
		}
	}
	tokens[len(tokens)-1].kind = tokenEnd
	return tokens, errs
}

// next reads the token at or after a byte of a line.
func (s *source) next(text string, line, at int) (token, *Error) {
	rest := strings.TrimLeft(text[at:], blanks)
	at = len(text) - len(rest)
	if rest == "" || rest[0] == '#' {
		return token{tokenLine, "", line, at, at}, nil
	}
	for _, sign := range signs {
		if strings.HasPrefix(rest, sign.text) {
			return token{tokenSign, sign.as, line, at, at + len(sign.text)}, nil
		}
	}
	switch rest[0] {
	case '"':
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			t := token{tokenQuoted, "", line, at, at + 1}
			return t, s.fail(t, "this quote is never closed")
		}
		t := token{tokenQuoted, "", line, at, at + len(quoted)}
		if t.text, err = strconv.Unquote(quoted); err != nil {
			return t, s.fail(t, "invalid quoted text")
		}
		return t, nil
	case ';':
		t := token{tokenSign, ";", line, at, at + 1}
		return t, s.fail(t, "unexpected ;: write one rule per line")
	}
	n := strings.IndexAny(rest, wordEnds)
	if n < 0 {
		n = len(rest)
	}
	return token{tokenWord, rest[:n], line, at, at + n}, nil
}

// quoteWord writes a word so that the lexer reads it back as one token.
func quoteWord(s string) string {
	if s == "" || strings.ContainsAny(s, wordEnds) || isKeyword(s) || strconv.Quote(s) != `"`+s+`"` {
		return strconv.Quote(s)
	}
	return s
}
