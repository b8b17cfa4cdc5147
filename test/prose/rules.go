package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// entry is a word of words.yaml.
type entry struct {
	Word   string   `yaml:"word"`
	Use    string   `yaml:"use"`
	Except []string `yaml:"except"`
	Names  bool     `yaml:"names"`
}

type rule struct {
	entry
	word   *regexp.Regexp
	name   *regexp.Regexp // nil: identifiers may contain it
	except []*regexp.Regexp
}

type rules []rule

func parseRules(list []byte) (rules, error) {
	var entries []entry
	if err := yaml.Unmarshal(list, &entries); err != nil {
		return nil, fmt.Errorf("words.yaml: %w", err)
	}
	all := make(rules, len(entries))
	for i, e := range entries {
		r := rule{entry: e}
		var err error
		if r.word, err = regexp.Compile(`(?i)\b(` + e.Word + `)\b`); err != nil {
			return nil, fmt.Errorf("words.yaml: %s: %w", e.Word, err)
		}
		if e.Names {
			r.name = regexp.MustCompile(`^(` + e.Word + `)$`)
		}
		for _, x := range e.Except {
			exception, err := regexp.Compile(x)
			if err != nil {
				return nil, fmt.Errorf("words.yaml: %s: except %s: %w", e.Word, x, err)
			}
			r.except = append(r.except, exception)
		}
		all[i] = r
	}
	return all, nil
}

// check reports the findings in a file, by line.
func (all rules) check(file string, text []byte) []string {
	var found []string
	for n, l := range split(file, text) {
		for _, r := range all {
			if word := r.find(l); word != "" {
				found = append(found, fmt.Sprintf("%s:%d: %s: write %s", file, n+1, word, r.Use))
			}
		}
	}
	return found
}

// find is the first place where a line breaks the rule, or empty.
func (r *rule) find(l line) string {
	if word := r.word.FindString(r.mask(l.text)); word != "" {
		return word
	}
	if r.name == nil {
		return ""
	}
	for _, name := range identifier.FindAllString(r.mask(l.code), -1) {
		for _, part := range parts(name) {
			if r.name.MatchString(part) {
				return name
			}
		}
	}
	return ""
}

func (r *rule) mask(s string) string {
	for _, x := range r.except {
		s = x.ReplaceAllString(s, "")
	}
	return s
}

var identifier = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)

// parts are the words of an identifier in camelCase or snake_case, in lower case.
func parts(name string) []string {
	var b strings.Builder
	runes := []rune(name)
	for i, c := range runes {
		if i > 0 && unicode.IsUpper(c) && !unicode.IsUpper(runes[i-1]) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return strings.FieldsFunc(b.String(), func(c rune) bool { return c == '_' || unicode.IsDigit(c) })
}
