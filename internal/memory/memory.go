// Package memory reports how much memory this process may take, and divides it.
// Input: what the machine has, what the control groups above the process allow,
// and what each component wants. Output: the size of each component. The agent
// sizes everything from it; waymark config check and status show the table.
package memory

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is the memory of this machine in bytes.
func Machine() (uint64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("size of the machine's memory: %w", err)
	}
	return uint64(info.Totalram) * uint64(info.Unit), nil
}

// Limit is what a control group leaves to this process.
type Limit struct {
	Bytes  uint64 // 0: there is no limit
	Others uint64 // bytes of Bytes that other processes of the group hold
	File   string // where the limit is set
}

// Available is the limit less what others hold.
func (l Limit) Available() uint64 { return l.Bytes - min(l.Others, l.Bytes) }

// Group is the control group of this process, or one above it, that leaves the
// least memory.
func Group() (Limit, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Limit{}, fmt.Errorf("memory limit of the control group: %w", err)
	}
	limit, err := groupLimit(os.DirFS("/sys/fs/cgroup"), string(groups), resident())
	if err != nil {
		return Limit{}, fmt.Errorf("memory limit of the control group: %w", err)
	}
	if limit.File != "" {
		limit.File = path.Join("/sys/fs/cgroup", limit.File)
	}
	return limit, nil
}

// hierarchy is one version of control groups.
type hierarchy struct {
	dirs   []string // where it is mounted
	limits []string // files with a limit, relative to a group
	usage  string
	// fields of memory.stat: memory that the kernel reclaims, and what of it it cannot
	cache, shmem string
}

// Version 2 (cgroup-v2.rst): beyond memory.high the kernel slows the group down
// until it stands still, so it is a limit, too. On a host with both versions it
// is mounted below.
var (
	version2 = hierarchy{[]string{"", "unified"}, []string{"memory.max", "memory.high"}, "memory.current", "file", "shmem"}
	version1 = hierarchy{[]string{"memory"}, []string{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_cache", "total_shmem"}
)

// Version 1 shows the largest number of whole pages where there is no limit.
const noLimit = 1 << 62

// groupLimit looks at every group on the way from the process's own to the root.
// In a container the root is the group itself, whatever groups says.
func groupLimit(root fs.FS, groups string, own uint64) (Limit, error) {
	least := Limit{Bytes: math.MaxUint64}
	for line := range strings.Lines(groups) {
		// hierarchy:controllers:path
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		h := version2
		switch {
		case part[0] == "0":
		case strings.Contains(","+part[1]+",", ",memory,"):
			h = version1
		default:
			continue
		}
		for _, dir := range h.dirs {
			for p := path.Clean("/" + part[2]); ; p = path.Dir(p) {
				limit, err := h.read(root, path.Join(dir, p[1:]), own)
				if err != nil {
					return Limit{}, err
				}
				if limit.Bytes != 0 && limit.Available() < least.Available() {
					least = limit
				}
				if p == "/" {
					break
				}
			}
		}
	}
	if least.File == "" {
		return Limit{}, nil
	}
	return least, nil
}

// read reads the limit of one group, and what processes other than this one hold
// there permanently.
func (h *hierarchy) read(root fs.FS, group string, own uint64) (least Limit, err error) {
	for _, name := range h.limits {
		file := path.Join(group, name)
		n, err := readNumber(root, file)
		if err != nil {
			return Limit{}, err
		}
		if n != 0 && n < noLimit && (least.Bytes == 0 || n < least.Bytes) {
			least = Limit{Bytes: n, File: file}
		}
	}
	if least.Bytes == 0 {
		return Limit{}, nil
	}
	used, err := readNumber(root, path.Join(group, h.usage))
	if err != nil {
		return Limit{}, err
	}
	stat, err := fs.ReadFile(root, path.Join(group, "memory.stat"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Limit{}, err
	}
	reclaimable := field(stat, h.cache) - min(field(stat, h.shmem), field(stat, h.cache))
	least.Others = used - min(used, reclaimable+own)
	return least, nil
}

// readNumber reads a number of bytes; 0: there is none here, or no limit.
func readNumber(root fs.FS, file string) (uint64, error) {
	text, err := fs.ReadFile(root, file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil { // "max" is not a number
		return 0, nil
	}
	return n, nil
}

// field is a line of memory.stat; 0: it is not there.
func field(stat []byte, name string) uint64 {
	lines := bufio.NewScanner(bytes.NewReader(stat))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			n, _ := strconv.ParseUint(value, 10, 64)
			return n
		}
	}
	return 0
}

// resident is the memory of this process alone; 0: not known.
func resident() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kib uint64
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}
