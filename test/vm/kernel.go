package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kernel is one of Debian's, as `scripts/fetch-kernel` unpacked it.
type kernel struct {
	image   string
	modules modules
}

// findKernel looks for a version, such as "6.1", in the cache below the module's root.
func findKernel(root, version string) (*kernel, error) {
	dir := filepath.Join(root, ".cache", "vm", version)
	image := filepath.Join(dir, "vmlinuz")
	if _, err := os.Stat(image); err != nil {
		return nil, fmt.Errorf("no kernel %s for test machines: %w; run 'scripts/fetch-kernel %s'", version, err, version)
	}
	found, err := findModules(filepath.Join(dir, "modules"))
	if err != nil {
		return nil, err
	}
	return &kernel{image: image, modules: found}, nil
}

// moduleRoot is the folder of the go.mod that the working directory belongs to.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module's root: %w", err)
	}
	gomod := strings.TrimSpace(string(out))
	if filepath.Base(gomod) != "go.mod" {
		return "", fmt.Errorf("find the module's root: %q is no go.mod", gomod)
	}
	return filepath.Dir(gomod), nil
}
