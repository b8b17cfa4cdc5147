package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRefuses: a wrong command line is a usage error that names what is wrong; a missing agent has a remedy.
func TestRefuses(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, c := range []struct {
		line string
		code int
		text string
	}{
		{"nothing", 2, "nothing"},
		{"datapath extra", 2, "extra"},
		{"datapath --agent x", 2, "--agent"},
		{"probes", 1, "--agent PATH"},
		{"pdm --agent /nowhere/waymark", 1, "/nowhere/waymark"},
	} {
		started := false
		cmd := newCommand(&started)
		cmd.SetArgs(strings.Fields(c.line))
		cmd.SetErr(io.Discard)
		err := cmd.Execute()
		if err == nil {
			t.Errorf("%s: no error", c.line)
		} else if code := exitCode(err, started); code != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: exit code %d, %v", c.line, code, err)
		}
	}
}

func TestFindAgent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "waymark")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	if got, err := findAgent(""); got != path || err != nil {
		t.Errorf("findAgent() = %q, %v; want %q", got, err, path)
	}
}
