package filter

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/order"
)

// Word may stand at a place of an expression.
type Word struct{ Text, Doc string }

// Next reports what may follow an expression that is being written, for the
// completion of a shell. field is the name of a field whose values the caller has
// to know, such as iface; empty: words are all there is.
func Next(text string) (words []Word, field string) {
	text = strings.TrimSpace(text)
	_, err := Parse(text)
	var e *Error
	switch {
	case text == "":
		return tests(), ""
	case err == nil:
		words = []Word{{"and", ""}, {"or", ""}}
		if s := shorthands[strings.ToLower(lastWords(text, 1))]; s.leads {
			words = append(words, fieldWords()...)
		}
		return append(words, continued(text)...), ""
	case !errors.As(err, &e) || e.Pos < len(text):
		return nil, ""
	case e.wants == nil:
		return tests(), ""
	}
	f := e.wants
	for _, name := range f.names {
		if !strings.Contains(name, " ") { // a hint for messages
			words = append(words, Word{name, ""})
		}
	}
	if f.services {
		for _, name := range slices.Sorted(maps.Keys(services)) {
			words = append(words, Word{name, ""})
		}
	}
	if f.kind == kindText || f.kind == kindAddress {
		field = f.name
	}
	return append(words, continued(text)...), field
}

// tests are the words that begin one.
func tests() []Word {
	words := fieldWords()
	for _, name := range Shorthands() {
		words = append(words, Word{name, ""})
	}
	return append(words, Word{"not", ""})
}

func fieldWords() []Word {
	var words []Word
	for i := range fields {
		words = append(words, Word{fields[i].name, fields[i].doc})
		for _, alias := range fields[i].aliases {
			if !strings.Contains(alias, " ") {
				words = append(words, Word{alias, fields[i].doc})
			}
		}
	}
	return words
}

// continued are the words that make the name of a field longer: src port.
func continued(text string) []Word {
	var words []Word
	for n := 1; n < maxWords; n++ {
		begin := strings.ToLower(lastWords(text, n)) + " "
		for _, name := range slices.Sorted(maps.Keys(phrases)) {
			if rest, ok := strings.CutPrefix(name, begin); ok {
				next, _, _ := strings.Cut(rest, " ")
				words = append(words, Word{next, ""})
			}
		}
	}
	order.By(words, func(a, b Word) int { return strings.Compare(a.Text, b.Text) })
	return slices.Compact(words)
}

// lastWords are up to n words at the end.
func lastWords(text string, n int) string {
	words := strings.Fields(text)
	return strings.Join(words[max(len(words)-n, 0):], " ")
}
