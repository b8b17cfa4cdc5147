// Package main is prose, the check of the project's wording: text for people uses the field's terms.
//
// Input: words.yaml, and the files that git lists below the working directory.
// Output: a line "file:line: word: write …" for each finding, and exit code 1 if there are any. `make lint` runs it.
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

//go:embed words.yaml
var wordList []byte

// skipped are files that quote words, or whose text is not the project's.
var skipped = []string{"test/prose/", "docs/reference/", "LICENSE", "bpf/LICENSE", "go.sum", "tools/go.sum"}

func main() {
	rules, err := parseRules(wordList)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	}
	files, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose: list files:", err)
		os.Exit(2)
	}
	failed := false
	for file := range strings.SplitSeq(strings.TrimRight(string(files), "\x00"), "\x00") {
		text, err := os.ReadFile(file)
		if err != nil || isSkipped(file) || bytes.IndexByte(text, 0) >= 0 {
			continue // deleted, not ours, or not text
		}
		for _, f := range rules.check(file, text) {
			failed = true
			fmt.Println(f)
		}
	}
	if failed {
		os.Exit(1)
	}
}

func isSkipped(file string) bool {
	for _, s := range skipped {
		if strings.HasPrefix(file, s) {
			return true
		}
	}
	return strings.HasSuffix(file, ".svg")
}
