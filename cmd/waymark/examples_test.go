package main

import (
	"os/exec"
	"strings"
	"testing"
)

// Every example of the help reaches its command through a shell: no character
// is interpreted, flags and filters are right.
func TestExamples(t *testing.T) {
	root, _ := newRootCommand()
	for _, cmd := range documented(root) {
		for line := range strings.Lines(cmd.Example) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "sudo ")
			if !strings.HasPrefix(line, "waymark ") || strings.Contains(line, "| ") || strings.HasSuffix(line, "> waymark.yaml") {
				continue
			}
			sh := exec.CommandContext(t.Context(), "sh", "-c", `waymark() { printf '%s\n' "$@"; }; `+line)
			sh.Dir = t.TempDir()
			out, err := sh.Output()
			if err != nil || len(out) == 0 {
				t.Errorf("%s: the shell takes it for something else: %v", line, err)
				continue
			}
			args := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			fresh, _ := newRootCommand()
			found, rest, err := fresh.Find(args)
			if err != nil || !strings.HasPrefix(found.CommandPath(), cmd.CommandPath()) {
				t.Errorf("%s: it calls %s: %v", line, found.CommandPath(), err)
				continue
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			if found.Flags().Lookup("filter") == nil {
				continue
			}
			found.SetContext(t.Context())
			if _, err := filterOf(found, "", found.Flags().Args()); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
}
