// Package programs finds the other programs of Waymark. Input: the name of one. Output: its path. Callers: the command line, and
// exporters that send by a program of their own.
package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Find looks next to this program first, so that both are of one version.
func Find(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%[1]s, a program of its own, is neither next to waymark nor in PATH: install usr/bin/%[1]s of the same release", name)
	}
	return path, err
}
