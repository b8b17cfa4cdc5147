package main

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// skip is an entry of the file of allowed skips.
type skip struct {
	// pattern is matched by path.Match against "folder.TestName/subtest".
	pattern, why string
}

// readSkips reads lines "PATTERN REASON"; "#" starts a comment. No file, no leave.
func readSkips(file string) ([]skip, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the allowed skips: %w", err)
	}
	var list []skip
	for i, line := range strings.Split(string(raw), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, why, _ := strings.Cut(line, " ")
		why = strings.TrimSpace(why)
		if why == "" {
			return nil, fmt.Errorf("%s:%d: %q is allowed without a reason; write one behind it", file, i+1, pattern)
		}
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("%s:%d: pattern %q: %w", file, i+1, pattern, err)
		}
		list = append(list, skip{pattern, why})
	}
	return list, nil
}

// leave finds why a test may be skipped.
func leave(allowed []skip, test string) (why string, ok bool) {
	for _, s := range allowed {
		if match, err := path.Match(s.pattern, test); err == nil && match {
			return s.why, true
		}
	}
	return "", false
}
