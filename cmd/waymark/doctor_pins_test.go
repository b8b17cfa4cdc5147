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
