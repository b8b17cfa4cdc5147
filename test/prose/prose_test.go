package main

import (
	"slices"
	"testing"
)

// The list is valid, and each word is found in text and, where it says so, in names.
func TestFindings(t *testing.T) {
	rules, err := parseRules([]byte(`
- {word: told, use: reported, names: true}
- {word: 'octets?', use: bytes, names: true, except: ['octetDeltaCount']}
- {word: for good, use: permanently}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file, text string
		want       []string
	}{
		{"a.md", "It was Told\nfine, untold\n", []string{"a.md:1: Told: write reported"}},
		{"a.md", "octetDeltaCount has octets", []string{"a.md:1: octets: write bytes"}},
		{
			"a.go", "package a\n\n// told\nvar told, readTold, untoldNumber = 1, `a\ntold`, 2\n",
			[]string{"a.go:3: told: write reported", "a.go:4: told: write reported", "a.go:5: told: write reported"},
		},
		{"a.go", "package a\n\nvar readTold = \"octetDeltaCount\"\n", []string{"a.go:3: readTold: write reported"}},
		{
			"a.h", "int a; /* not\n * told */ int b; // for good\nint told_at = x / y;\n",
			[]string{"a.h:2: told: write reported", "a.h:2: for good: write permanently", "a.h:3: told_at: write reported"},
		},
		{"a.sh", "echo fine # octetDeltaCount\n", nil},
	} {
		if got := rules.check(c.file, []byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: got %q, want %q", c.file, c.text, got, c.want)
		}
	}
}

func TestWordList(t *testing.T) {
	rules, err := parseRules(wordList)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if r.Use == "" {
			t.Errorf("%s: no word to use instead", r.Word)
		}
	}
}
