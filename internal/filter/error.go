package filter

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Error reports what is wrong with an expression, and where.
type Error struct {
	Text     string // the expression
	Pos, End int    // bytes [Pos, End) of it; both len(Text): at its end
	What     string

	wants *field // a value of it is missing at Pos; nil: something else is wrong
}

// Error has three lines: what is wrong, the expression, and a mark below the place.
func (e *Error) Error() string {
	clean := func(s string) string {
		return strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return ' '
		}, s)
	}
	before, at := clean(e.Text[:e.Pos]), clean(e.Text[e.Pos:e.End])
	// A long expression is shown from a little before the place.
	const around = 50
	rest := clean(e.Text[e.End:])
	if n := utf8.RuneCountInString(before); n > around {
		before = "…" + string([]rune(before)[n-around:])
	}
	if n := utf8.RuneCountInString(rest); n > around {
		rest = string([]rune(rest)[:around]) + "…"
	}
	mark := strings.Repeat("^", max(utf8.RuneCountInString(at), 1))
	return "filter: " + e.What + "\n  " + before + at + rest +
		"\n  " + strings.Repeat(" ", utf8.RuneCountInString(before)) + mark
}
