package rules

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Error is one thing that is wrong with a rule file, and where.
type Error struct {
	Pos  Position
	What string // with what was expected, or the remedy
	Line string // text of the line; empty: there is none to show
	End  int    // column behind the place
}

// String is the position as file:line:column.
func (p Position) String() string {
	text := p.File
	if p.Line > 0 {
		text += ":" + strconv.Itoa(p.Line)
	}
	if p.Column > 0 {
		text += ":" + strconv.Itoa(p.Column)
	}
	return strings.TrimPrefix(text, ":")
}

// Of long words and lines only a part is shown: so much of a word, and so much of a line around the place.
const (
	longestWord = 200
	around      = 60
)

// shorten cuts a word.
func shorten(word string) string {
	n := 0
	for at := range word {
		if n == longestWord {
			return word[:at] + "…"
		}
		n++
	}
	return word
}

// Error is what is wrong, and the line with a mark below the place.
func (e *Error) Error() string {
	text := e.Pos.String() + ": " + printable(e.What)
	if e.Line == "" {
		return text
	}
	line := []rune(printable(e.Line))
	from := min(e.Pos.Column-1, len(line))
	to := min(e.End-1, len(line), from+around)
	before, after := "", ""
	if cut := from - around; cut > 0 {
		line, from, to, before = line[cut:], from-cut, to-cut, "…"
	}
	if cut := max(to, from) + around; cut < len(line) {
		line, after = line[:cut], "…"
	}
	return fmt.Sprintf("%s\n  %s%s%s\n  %s%s", text, before, string(line), after,
		strings.Repeat(" ", utf8.RuneCountInString(before)+from), strings.Repeat("^", max(to-from, 1)))
}

// printable has spaces in place of what a terminal would obey.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// maxErrors is how much of what is wrong is reported.
const maxErrors = 100

// Errors are what is wrong with a rule file, in the order of the text.
type Errors []*Error

// bounded leaves out what is too much: it is no rule file.
func (e Errors) bounded() Errors {
	if len(e) <= maxErrors {
		return e
	}
	first := e[maxErrors]
	return append(e[:maxErrors:maxErrors], &Error{Pos: Position{File: first.Pos.File, Line: first.Pos.Line}, What: fmt.Sprintf("%d further errors are not shown: is this a rule file?", len(e)-maxErrors)})
}

func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "\n")
}

// Unwrap returns the errors one by one.
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, one := range e {
		list[i] = one
	}
	return list
}
