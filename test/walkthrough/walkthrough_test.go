// Package walkthrough runs the walk-throughs of CONTRIBUTING.md. Input: the patches in
// it. Output: none but failures. Caller: go test.
package walkthrough

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// TestAddingACounter applies the patch to copies of the files that it names, builds
// with them in place of the originals, and runs the test that it adds.
func TestAddingACounter(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Adding a counter\n")
	_, rest, _ := strings.Cut(section, "\n```diff\n")
	patch, _, found := strings.Cut(rest, "\n```\n")
	if !found {
		t.Fatal("CONTRIBUTING.md has no patch that adds a counter")
	}
	copies := t.TempDir()
	var files []string
	for _, m := range regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)`).FindAllStringSubmatch(patch, -1) {
		files = append(files, m[1])
	}
	if len(files) == 0 || len(files) > 6 {
		t.Fatalf("the patch touches %v: want one to six files", files)
	}
	replace := map[string]string{}
	for _, name := range files {
		to := filepath.Join(copies, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(root, name)); err == nil {
			if err := os.WriteFile(to, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		original, err := filepath.Abs(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		replace[original] = to
	}
	run(t, copies, patch+"\n", "git", "apply", "--unsafe-paths", "--directory="+copies, "-")
	overlay := filepath.Join(copies, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, list, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, root, "", "go", "build", "-overlay", overlay, "./internal/datapath")
	out := run(t, root, "", "go", "test", "-overlay", overlay, "-run", "TestGSOPackets", "-v", "./internal/store")
	if !strings.Contains(out, "--- PASS: TestGSOPackets") {
		t.Errorf("the test of the patch did not run:\n%s", out)
	}
}

func run(t *testing.T, dir, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
