package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory sets the Go heap's soft limit to nine tenths of what the control
// group allows, unless GOMEMLIMIT is set: collecting more often is better than
// being killed. It returns the limit in octets, 0 for none.
func limitMemory() (int64, error) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0, nil
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, err
	}
	limit, err := groupLimit(os.DirFS("/sys/fs/cgroup"), string(groups))
	if err != nil || limit == 0 {
		return 0, err
	}
	limit = limit / 10 * 9
	debug.SetMemoryLimit(limit)
	return limit, nil
}

// groupLimit is the smallest memory.max on the way from the process's group
// (version 2) to the root; 0: none.
func groupLimit(root fs.FS, groups string) (int64, error) {
	path := ""
	for line := range strings.Lines(groups) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/"); ok {
			path = p
		}
	}
	var smallest int64
	for dir := filepath.Clean("/" + path)[1:]; ; dir = filepath.Dir(dir) {
		if dir == "" {
			dir = "."
		}
		text, err := fs.ReadFile(root, filepath.Join(dir, "memory.max"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		// "max" is no number: no limit here.
		if n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); bad == nil && (smallest == 0 || n < smallest) {
			smallest = n
		}
		if dir == "." {
			return smallest, nil
		}
	}
}
