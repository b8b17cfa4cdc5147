package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program is the path of the program under test.
var program string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if os.Geteuid() != 0 {
		return 1, fmt.Errorf("labs, programs and other users' rights take root: run as root")
	}
	// A variable of the developer's shell would configure every agent.
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "WAYMARK_") || name == "NOTIFY_SOCKET" {
			os.Unsetenv(name)
		}
	}
	if program = os.Getenv("E2E_BINARY"); program != "" {
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "waymark-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	// Other users run it, too.
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	program = filepath.Join(dir, "waymark")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "github.com/waymark-net/waymark/cmd/waymark")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return m.Run(), nil
}
