// Package built is the program under test. Only tests call it.
package built

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// In is `waymark`, next to `waymark-analyze` and `waymark-kafka`: what E2E_BINARY names, as `make test` does, or what this builds in a folder.
func In(dir string) (path string, err error) {
	if path := os.Getenv("E2E_BINARY"); path != "" {
		return path, nil
	}
	path = filepath.Join(dir, "waymark")
	build := exec.Command("go", "build", "-trimpath", "-tags=nethttpomithttp2", "-ldflags=-s -w", "-o", dir+"/", "github.com/waymark-net/waymark/cmd/waymark",
		"github.com/waymark-net/waymark/cmd/waymark-analyze", "github.com/waymark-net/waymark/cmd/waymark-kafka")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build waymark: %w\n%s", err, out)
	}
	return path, nil
}

// Waymark is In a folder that is deleted with the test.
func Waymark(t testing.TB) string {
	t.Helper()
	path, err := In(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}
