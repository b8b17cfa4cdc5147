package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoctorPins: doctor looks for rules that were left in effect where the configuration says.
func TestDoctorPins(t *testing.T) {
	dir := t.TempDir()
	pin, file := filepath.Join(dir, "link-xdp-7-1"), filepath.Join(t.TempDir(), "waymark.yaml")
	for path, text := range map[string]string{pin: "", file: "gate: {pin_dir: " + dir + "}\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	c := newDoctorCommand()
	c.SetArgs([]string{"--config", file})
	c.SetOut(&out)
	c.SetErr(&out)
	_ = c.ExecuteContext(t.Context()) // says what the kernel lacks
	for _, want := range []string{pin, "waymark restore --pins --pin-dir " + dir} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, out.String())
		}
	}
}

// TestRestorePins: restore looks where the configuration says, without a flag for the directory, and names it.
func TestRestorePins(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	file := filepath.Join(t.TempDir(), "waymark.yaml")
	if err := os.WriteFile(file, []byte("gate: {pin_dir: "+dir+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"--config " + file, "nothing to remove in directory " + dir + " (by " + file + ")\n"},
		{"--config " + file + " --pin-dir " + other, "nothing to remove in directory " + other + "\n"},
		{"", " configuration; --config names another)\n"}, // no agent runs here
	} {
		var out bytes.Buffer
		cmd := newRestoreCommand()
		cmd.SetArgs(append([]string{"--pins"}, strings.Fields(c.args)...))
		cmd.SetOut(&out)
		if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.HasSuffix(out.String(), c.want) {
			t.Errorf("%s: %q, %v; want %q", c.args, out.String(), err, c.want)
		}
	}
}
