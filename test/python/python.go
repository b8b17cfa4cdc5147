// Package python runs Python with the packages that scripts/setup installs for tests. Input: arguments. Output: a command. Callers:
// packages of tests whose engines are Python packages.
package python

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// folder is where scripts/setup puts the packages, in the tree that the working directory is in.
func folder() string {
	const within = ".cache/python"
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if at := filepath.Join(dir, within); isDir(at) {
			return at
		}
		dir = filepath.Dir(dir)
	}
	return within
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Command runs Python.
func Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "python3", args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+folder()+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"))
	return cmd
}
