package vm

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"
)

// Build compiles the main package at the import path or folder pkg to a static binary; it returns where it lies.
func Build(t testing.TB, pkg string, flags ...string) string {
	t.Helper()
	return compile(t, pkg, append([]string{"build", "-ldflags=-s"}, flags...))
}

// BuildTest compiles the tests of a package to a static binary; it returns where it lies. In the guest such a
// binary takes the flags of `go test` with the prefix "test.": -test.v, -test.run.
func BuildTest(t testing.TB, pkg string, flags ...string) string {
	t.Helper()
	return compile(t, pkg, append([]string{"test", "-c", "-vet=off", "-ldflags=-s"}, flags...))
}

func compile(t testing.TB, pkg string, args []string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), path.Base(pkg))
	cmd := exec.Command("go", append(args, "-o", binary, pkg)...)
	// The guest has no libc. With less garbage collection, linking takes a third less CPU time.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOGC=800")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile %s for a test machine: %v\n%s", pkg, err, out)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("compile %s for a test machine: %v; has it tests?", pkg, err)
	}
	return binary
}
