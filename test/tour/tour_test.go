// Package tour compares the tour of the code, docs/packet-path.md, with the code.
package tour

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

var quoted = regexp.MustCompile("`([^`]+)`")

// tour is a section of the page, or fails.
func tour(t *testing.T, heading string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/packet-path.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/packet-path.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// rows are the cells of a section's table, without its head.
func rows(section string) (rows [][]string) {
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "|") {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows[2:]
}

func names(cell string) (found []string) {
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		found = append(found, m[1])
	}
	return found
}

// compare reports what is only in one of two lists; each entry may be in it once.
func compare(t *testing.T, what string, page, tree []string) {
	t.Helper()
	slices.Sort(page)
	for i, p := range page {
		if i > 0 && p == page[i-1] {
			t.Errorf("%s: %s is named twice", what, p)
		}
		if !slices.Contains(tree, p) {
			t.Errorf("%s: %s does not exist", what, p)
		}
	}
	for _, f := range tree {
		if !slices.Contains(page, f) {
			t.Errorf("%s: %s is missing", what, f)
		}
	}
}

// Every folder of internal/ with Go files is named once.
func TestFolders(t *testing.T) {
	var page []string
	for _, cells := range rows(tour(t, "Folders of internal/")) {
		page = append(page, names(cells[0])...)
	}
	compare(t, "docs/packet-path.md, folders of internal/", page, folders(t, "internal", ".go"))
}

func folders(t *testing.T, below, ext string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, below), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "testdata" {
			return fs.SkipDir
		}
		if dir := filepath.Dir(relative(path)); err == nil && filepath.Ext(path) == ext && !strings.Contains(path, "_bpfe") && !slices.Contains(list, dir) {
			list = append(list, dir)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func relative(path string) string { return strings.TrimPrefix(path, root+"/") }

// Every file of bpf/ is named once, below its folder.
func TestMapOfBPF(t *testing.T) {
	var page []string
	folder := ""
	for _, cells := range rows(tour(t, "Map of bpf/")) {
		if cells[0] != "" {
			folder = strings.TrimSuffix(names(cells[0])[0], "/")
		}
		for _, pattern := range names(cells[1]) {
			files, err := filepath.Glob(filepath.Join(root, folder, pattern))
			if err != nil {
				t.Fatal(err)
			}
			if len(files) == 0 {
				t.Errorf("docs/packet-path.md, map of bpf/: %s/%s does not exist", folder, pattern)
			}
			for _, f := range files {
				page = append(page, relative(f))
			}
		}
	}
	var tree []string
	for _, pattern := range []string{"*.[ch]", "*/*.[ch]"} {
		files, err := filepath.Glob(filepath.Join(root, "bpf", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			tree = append(tree, relative(f))
		}
	}
	compare(t, "docs/packet-path.md, map of bpf/", page, tree)
}

// Every function of the call chain is in the file that is named with it.
func TestCallChain(t *testing.T) {
	steps := rows(tour(t, "From a drain to the collector"))
	for _, cells := range steps {
		function, file := names(cells[1])[0], names(cells[2])[0]
		if !slices.Contains(functions(t, file), function) {
			t.Errorf("docs/packet-path.md, call chain: %s has no function %s", file, function)
		}
	}
	first, last := names(steps[1][1])[0], names(steps[len(steps)-1][1])[0]
	if first != "Agent.drainOnce" || !strings.HasSuffix(last, ".send") {
		t.Errorf("the call chain is from %s to %s, want one from Agent.drainOnce to a socket", first, last)
	}
}

// functions are the names of a file's functions, methods as Type.Method.
func functions(t *testing.T, file string) (list []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			typ := f.Recv.List[0].Type
			if star, ok := typ.(*ast.StarExpr); ok {
				typ = star.X
			}
			if id, ok := typ.(*ast.Ident); ok {
				name = id.Name + "." + name
			}
		}
		list = append(list, name)
	}
	return list
}

// What answers a question exists: files, and functions and enums in the files named with them.
func TestQuestions(t *testing.T) {
	for _, cells := range rows(tour(t, "Questions")) {
		for sentence := range strings.SplitSeq(cells[1], ";") {
			var symbols []string
			for _, n := range names(sentence) {
				switch {
				case strings.Contains(n, "/"):
					checkFile(t, cells[0], n, symbols)
					symbols = nil
				case strings.HasSuffix(n, "()") || strings.HasPrefix(n, "enum "):
					symbols = append(symbols, strings.TrimSuffix(n, "()"))
				}
			}
		}
	}
}

func checkFile(t *testing.T, question, file string, symbols []string) {
	t.Helper()
	path := filepath.Join(root, file)
	info, err := os.Stat(path)
	if err != nil {
		t.Errorf("%s: %s does not exist", question, file)
		return
	}
	if info.IsDir() {
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		_, name, isMethod := strings.Cut(s, ".")
		if !isMethod {
			name = s
		}
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).Match(text) {
			t.Errorf("%s: %s is not in %s", question, s, file)
		}
	}
}

// Links in the documents lead to files, and to headings that exist.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]*)(#[^)]*)?\)`)
	pages, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, anchor := m[1], m[2]
			if strings.Contains(target, "://") {
				continue
			}
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			to, err := os.ReadFile(file)
			if info, statErr := os.Stat(file); statErr == nil && info.IsDir() {
				continue
			}
			if err != nil || anchor != "" && !hasHeading(string(to), anchor[1:]) {
				t.Errorf("%s: the link to %s%s leads nowhere", relative(page), target, anchor)
			}
		}
	}
}

// hasHeading reports whether a page has a heading with this anchor, as forges make them.
func hasHeading(page, anchor string) bool {
	for line := range strings.Lines(page) {
		text := strings.TrimLeft(line, "#")
		if text == line {
			continue
		}
		id := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
				return r
			}
			return -1
		}, strings.ToLower(strings.TrimSpace(text)))
		if id == anchor {
			return true
		}
	}
	return false
}

// The glossary is in alphabetical order, a line for each term.
func TestGlossary(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	before := ""
	for _, cells := range rows(string(page)) {
		term := strings.ToLower(cells[0])
		if len(cells) != 3 || cells[1] == "" {
			t.Errorf("%s: want a meaning and a source", cells[0])
		}
		if term <= before {
			t.Errorf("%q comes after %q", cells[0], before)
		}
		before = term
	}
}
