// Package memory tells how much memory this process may take: what the machine
// has, and what the control groups above the process allow. The flow table's
// default size and the limit of Go's heap follow from it.
package memory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is the memory of this machine, octets.
func Machine() (uint64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("size of the machine's memory: %w", err)
	}
	return uint64(info.Totalram) * uint64(info.Unit), nil
}

// Group is the least that a control group of this process allows, octets; 0:
// none does.
func Group() (uint64, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, fmt.Errorf("memory limit of the control group: %w", err)
	}
	limit, err := groupLimit(os.DirFS("/sys/fs/cgroup"), string(groups))
	if err != nil {
		return 0, fmt.Errorf("memory limit of the control group: %w", err)
	}
	return limit, nil
}

// Kernels without a limit in version 1 show the largest number of whole pages.
const noLimit = 1 << 62

// groupLimit reads limits of version 2 (cgroup-v2.rst, memory.max) and of
// version 1 (memory.rst, memory.limit_in_bytes), on the way from the process's
// group to the root. In a container the root is the group itself, whatever
// groups says.
func groupLimit(root fs.FS, groups string) (uint64, error) {
	var smallest uint64
	for line := range strings.Lines(groups) {
		// hierarchy:controllers:path
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		dir, file := "", ""
		switch {
		case part[0] == "0":
			file = "memory.max"
		case strings.Contains(","+part[1]+",", ",memory,"):
			dir, file = "memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for p := path.Clean("/" + part[2]); ; p = path.Dir(p) {
			limit, err := readLimit(root, path.Join(dir, p[1:], file))
			if err != nil {
				return 0, err
			}
			if limit != 0 && (smallest == 0 || limit < smallest) {
				smallest = limit
			}
			if p == "/" {
				break
			}
		}
	}
	return smallest, nil
}

// readLimit reads a number of octets; 0: no limit here.
func readLimit(root fs.FS, file string) (uint64, error) {
	text, err := fs.ReadFile(root, file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n >= noLimit { // "max" is no number
		return 0, nil
	}
	return n, nil
}
