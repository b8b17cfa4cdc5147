package toystage

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

// The walk-through in CONTRIBUTING.md shows the code that is tested here, touches
// six files at most, and its changes to other files compile.
func TestWalkThrough(t *testing.T) {
	page := read(t, "CONTRIBUTING.md")
	_, section, found := strings.Cut(page, "\n## Adding a stage\n")
	if !found {
		t.Fatal("CONTRIBUTING.md has no section on adding a stage")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	steps := regexp.MustCompile("(?m)^[0-9]+\\. `([^`]+)`").FindAllStringSubmatchIndex(section, -1)
	if len(steps) == 0 || len(steps) > 6 {
		t.Errorf("%d files are touched", len(steps))
	}
	changed := map[string]string{} // by path
	for i, at := range steps {
		path, text := section[at[2]:at[3]], section[at[1]:]
		if i+1 < len(steps) {
			text = section[at[1]:steps[i+1][0]]
		}
		file := read(t, path)
		for _, block := range regexp.MustCompile("(?s)\n   ```(c|go|diff)\n(.*?)\n   ```\n").FindAllStringSubmatch(text, -1) {
			code := strings.ReplaceAll("\n"+block[2], "\n   ", "\n")[1:]
			if block[1] != "diff" {
				if !strings.Contains(file, code+"\n") {
					t.Errorf("%s has no such code:\n%s", path, code)
				}
				continue
			}
			file = apply(t, path, file, code)
			changed[path] = file
		}
	}
	if len(changed) == 0 {
		t.Fatal("no change of another file is shown")
	}
	compile(t, changed)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// apply replaces the lines that begin with - by those that begin with +.
func apply(t *testing.T, path, file, diff string) string {
	t.Helper()
	var before, after string
	for line := range strings.Lines(diff + "\n") {
		switch line[0] {
		case '-':
			before += line[1:]
		case '+':
			after += line[1:]
		}
	}
	if strings.Count(file, before) != 1 {
		t.Fatalf("%s has %d times what is replaced:\n%s", path, strings.Count(file, before), before)
	}
	return strings.Replace(file, before, after, 1)
}

// compile builds the packages of changed files, and those that the agent needs.
func compile(t *testing.T, changed map[string]string) {
	t.Helper()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	dir := t.TempDir()
	for path, text := range changed {
		to := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		from, err := filepath.Abs(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		overlay.Replace[from] = to
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-overlay", file, "./internal/stage/list")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("with the changes of the walk-through: %v\n%s", err, out)
	}
}
