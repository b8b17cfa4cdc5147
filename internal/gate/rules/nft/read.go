package nft

import (
	"fmt"
	"slices"
	"strings"
)

type table struct {
	family, name string
	sets         []*set
	chains       []*chain
}

type set struct {
	name, kind string
	line       int
	elements   []string // as rules write them
}

type chain struct {
	name, hook, policy string
	statements         []statement
}

// statement is a line of a chain or set: words and signs.
type statement struct {
	line  int
	words []string
}

func (s *statement) text() string { return strings.Join(s.words, " ") }

// word is a word with its line; "\n" ends a line.
type word struct {
	text string
	line int
}

// split divides a text into words, signs and ends of lines. Quotes are removed.
func split(text string) (words []word) {
	for i, line := range strings.Split(text, "\n") {
		for line = strings.TrimSpace(line); line != "" && line[0] != '#'; line = strings.TrimLeft(line, " \t") {
			n := strings.IndexAny(line, " \t{},;()|\"#")
			switch {
			case n < 0:
				n = len(line)
			case line[0] == '"':
				end := strings.IndexByte(line[1:], '"')
				if end < 0 {
					end = len(line) - 1
				}
				words = append(words, word{line[1 : end+1], i + 1})
				line = line[min(end+2, len(line)):]
				continue
			case n == 0:
				n = 1
			}
			words = append(words, word{line[:n], i + 1})
			line = line[n:]
		}
		words = append(words, word{"\n", i + 1})
	}
	return words
}

// read reads tables with their sets and chains. Other objects are skipped; rules that
// use them have no equivalent.
func read(text string) (tables []*table, err error) {
	words := split(text)
	var t *table
	for len(words) > 0 {
		w := words[0]
		switch {
		case w.text == "\n" || w.text == ";" || w.text == "," || w.text == "add":
			words = words[1:]
		case w.text == "}" && t != nil:
			t, words = nil, words[1:]
		case w.text == "table" && t == nil:
			head, rest := until(words, "{")
			if len(rest) == 0 || len(head) < 2 || len(head) > 3 {
				return nil, fmt.Errorf("line %d: expected table, a family and a name: write the output of nft list ruleset into the file", w.line)
			}
			t = &table{"ip", head[len(head)-1], nil, nil}
			if len(head) == 3 {
				t.family = head[1]
			}
			tables, words = append(tables, t), rest[1:]
		case t == nil:
			return nil, fmt.Errorf("line %d: expected a table, found %s: write the output of nft list ruleset into the file", w.line, w.text)
		default:
			if words, err = t.object(words); err != nil {
				return nil, err
			}
		}
	}
	return tables, nil
}

// until returns the words in front of a sign, and the rest from it on.
func until(words []word, sign string) (texts []string, rest []word) {
	for i, w := range words {
		if w.text == sign {
			return texts, words[i:]
		}
		texts = append(texts, w.text)
	}
	return texts, nil
}

// object reads a set, a chain or something else of a table.
func (t *table) object(words []word) ([]word, error) {
	line := words[0].line
	head, rest := until(words, "{")
	if len(rest) == 0 || slices.Contains(head, "\n") {
		return nil, fmt.Errorf("line %d: expected { after %s", line, words[0].text)
	}
	body, rest, ok := block(rest)
	if !ok {
		return nil, fmt.Errorf("line %d: this brace is never closed", line)
	}
	statements := divide(body)
	switch {
	case len(head) == 2 && head[0] == "set":
		t.sets = append(t.sets, newSet(head[1], line, statements))
	case len(head) == 2 && head[0] == "chain":
		t.chains = append(t.chains, newChain(head[1], statements))
	}
	return rest, nil
}

// block returns what is between a brace and the one that closes it.
func block(words []word) (body, rest []word, ok bool) {
	depth := 0
	for i, w := range words {
		switch w.text {
		case "{":
			depth++
		case "}":
			if depth--; depth == 0 {
				return words[1:i], words[i+1:], true
			}
		}
	}
	return nil, nil, false
}

// divide makes statements of the words of a block.
func divide(words []word) (list []statement) {
	depth := 0
	var s statement
	for _, w := range append(slices.Clone(words), word{"\n", 0}) {
		switch {
		case w.text == "{":
			depth++
		case w.text == "}":
			depth--
		}
		switch {
		case depth == 0 && (w.text == "\n" || w.text == ";"):
			if len(s.words) > 0 {
				list = append(list, s)
			}
			s = statement{}
		case w.text != "\n":
			if len(s.words) == 0 {
				s.line = w.line
			}
			s.words = append(s.words, w.text)
		}
	}
	return list
}

func newChain(name string, statements []statement) *chain {
	c := &chain{name: name}
	for _, s := range statements {
		switch at := slices.Index(s.words, "hook"); {
		case s.words[0] == "type" && at > 0 && at+1 < len(s.words):
			c.hook = s.words[at+1]
		case s.words[0] == "policy" && len(s.words) == 2:
			c.policy = s.words[1]
		case s.words[0] == "comment":
		default:
			c.statements = append(c.statements, s)
		}
	}
	return c
}

func newSet(name string, line int, statements []statement) *set {
	one := &set{name: name, line: line}
	for _, s := range statements {
		switch s.words[0] {
		case "type", "typeof":
			one.kind = strings.Join(s.words[1:], " ")
		case "elements":
			if len(s.words) > 3 && s.words[1] == "=" {
				one.elements = elements(s.words[2:])
			}
		}
	}
	return one
}

// elements reads { a, b timeout 1h expires 59m }: with what is left of the time.
func elements(words []string) (list []string) {
	var one []string
	for _, w := range words {
		switch w {
		case "{":
		case ",", "}":
			if len(one) > 0 {
				text := one[0]
				if at := slices.Index(one, "expires"); at > 0 && at+1 < len(one) {
					text += " for " + one[at+1]
				}
				list = append(list, text)
			}
			one = nil
		default:
			one = append(one, w)
		}
	}
	return list
}
