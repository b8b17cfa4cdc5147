package main

import (
	"io"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

// Every rule in the reference is one.
func TestRulesGuide(t *testing.T) {
	const sets = "set blocked { 203.0.113.0/24 }\nset allowed { 192.0.2.7 }\n"
	texts := []string{}
	for _, e := range ruleActions {
		texts = append(texts, sets+e.text)
	}
	for _, e := range ruleConditions {
		texts = append(texts, sets+"drop "+e.text)
	}
	for _, e := range ruleSets {
		texts = append(texts, e.text)
	}
	open := func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("192.0.2.1\n")), nil }
	for _, text := range texts {
		if _, _, err := rules.Parse("reference", text, rules.Options{Open: open}); err != nil {
			t.Error(err)
		}
	}
}
