package main

import (
	"bytes"
	"go/scanner"
	"go/token"
	"path/filepath"
	"strings"
)

// line is a line of a file: its text for people, and its code.
type line struct{ text, code string }

// split divides a file into lines. Documents, scripts and test data are text; of programs, comments and strings are.
func split(file string, content []byte) []line {
	switch filepath.Ext(file) {
	case ".go":
		return splitGo(content)
	case ".c", ".h":
		return splitC(content)
	}
	all := strings.Split(string(content), "\n")
	lines := make([]line, len(all))
	for i, l := range all {
		lines[i].text = l
	}
	return lines
}

func splitGo(content []byte) []line {
	lines := make([]line, bytes.Count(content, []byte("\n"))+1)
	files := token.NewFileSet()
	f := files.AddFile("", files.Base(), len(content))
	var s scanner.Scanner
	s.Init(f, content, nil, scanner.ScanComments)
	for {
		at, kind, literal := s.Scan()
		if kind == token.EOF {
			return lines
		}
		n := f.Line(at) - 1
		switch kind {
		case token.COMMENT, token.STRING:
			for i, part := range strings.Split(literal, "\n") {
				lines[n+i].text += part + " "
			}
		case token.IDENT:
			lines[n].code += literal + " "
		}
	}
}

// splitC takes /* */ and // comments and strings out of the code.
func splitC(content []byte) []line {
	var lines []line
	inComment := false
	for l := range strings.SplitSeq(string(content), "\n") {
		var one line
		for l != "" {
			open, end := "/*", "*/"
			if inComment {
				before, after, found := strings.Cut(l, end)
				one.text += before + " "
				l, inComment = after, !found
				continue
			}
			at := strings.IndexAny(l, `/"`)
			if at < 0 {
				one.code += l
				break
			}
			one.code += l[:at] + " "
			l = l[at:]
			switch {
			case strings.HasPrefix(l, open):
				l, inComment = l[len(open):], true
			case strings.HasPrefix(l, "//"):
				one.text, l = one.text+l, ""
			case l[0] == '"':
				literal, after, _ := strings.Cut(l[1:], `"`)
				one.text, l = one.text+literal+" ", after
			default:
				one.code, l = one.code+"/", l[1:]
			}
		}
		lines = append(lines, one)
	}
	return lines
}
