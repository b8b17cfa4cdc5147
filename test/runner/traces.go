package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

const bpffs = "/sys/fs/bpf"

// headroomLock is made by the first agent on a host and stays: who removes a lock that others may open has none.
var headroomLock = []string{"/run/waymark", "/run/waymark/headroom.lock"}

// traces are what tests could leave, each in words: "link veth0", "sysctl net.ipv4.ip_forward = 1".
type traces map[string]bool

// traces lists what there is in the sandbox now.
func (box *sandbox) traces() (traces, error) {
	return collect(
		mounts, links, sysctls("/proc/sys/net"), pins,
		filesUnder("/run", "file", headroomLock...), filesUnder(box.tmp, "temporary file"),
	)
}

// machineTraces lists what tests could leave that has no walls.
func machineTraces(programs bool) func() (traces, error) {
	lists := []func(traces) error{sysctls("/proc/sys/kernel/bpf_stats_enabled", "/proc/sys/kernel/unprivileged_bpf_disabled")}
	if programs {
		lists = append(lists, bpfObjects)
	}
	return func() (traces, error) { return collect(lists...) }
}

func collect(lists ...func(traces) error) (traces, error) {
	found := traces{}
	for _, list := range lists {
		if err := list(found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// left is which processes ended too late, and what list finds that was not there before.
func left(ctx context.Context, before traces, list func() (traces, error)) ([]string, error) {
	left, err := endOrphans(ctx)
	if err != nil {
		return nil, err
	}
	// The kernel frees programs and namespaces a little after their last user is gone.
	var after []string
	err = poll(ctx, 5*time.Second, func(time.Duration) (bool, error) {
		now, err := list()
		if err != nil {
			return false, err
		}
		after = now.since(before)
		return len(after) == 0, nil
	})
	return append(left, after...), err
}

// since is what was not there before, sorted.
func (t traces) since(before traces) []string {
	added := maps.Clone(t)
	maps.DeleteFunc(added, func(trace string, _ bool) bool { return before[trace] })
	return slices.Sorted(maps.Keys(added))
}

// mounts shows named network namespaces too: such a name is a mount.
func mounts(found traces) error {
	raw, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return fmt.Errorf("list the mounts: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		// ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAGS] - TYPE …
		fields := strings.Fields(line)
		found["mount "+fields[4]+" of "+fields[slices.Index(fields, "-")+1]] = true
	}
	return nil
}

// links lists interfaces with the programs, queueing disciplines and filters on them.
func links(found traces) error {
	all, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list the links: %w", err)
	}
	for _, l := range all {
		name := l.Attrs().Name
		found["link "+name] = true
		if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
			found["XDP program on "+name] = true
		}
		if err := programsAtTCX(found, l); err != nil {
			return err
		}
		qdiscs, err := netlink.QdiscList(l)
		if err != nil {
			return fmt.Errorf("list the queueing disciplines of %s: %w", name, err)
		}
		for _, q := range qdiscs {
			found["qdisc "+q.Type()+" on "+name] = true
		}
	}
	return nil
}

// sysctls below roots with their values: none that the kernel moves by itself. Those of an interface come and go with
// it; only lo stays.
func sysctls(roots ...string) func(traces) error {
	return func(found traces) error {
		for _, root := range roots {
			if err := sysctlsUnder(root, found); err != nil {
				return fmt.Errorf("read sysctls below %s: %w", root, err)
			}
		}
		return nil
	}
}

func sysctlsUnder(root string, found traces) error {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipLink(path)
		}
		value, err := os.ReadFile(path)
		if err != nil {
			return nil // some can only be written
		}
		name := strings.ReplaceAll(strings.TrimPrefix(path, "/proc/sys/"), "/", ".")
		found["sysctl "+name+" = "+strings.TrimSpace(string(value))] = true
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without
	}
	return err
}

// skipLink says whether a folder of sysctls is that of an interface: …/conf/veth0, …/neigh/veth0.
func skipLink(dir string) error {
	switch filepath.Base(filepath.Dir(dir)) {
	case "conf", "neigh":
		if name := filepath.Base(dir); name != "all" && name != "default" && name != "lo" {
			return filepath.SkipDir
		}
	}
	return nil
}

// filesUnder lists what is below root, each with what it is in front, except what stays.
func filesUnder(root, what string, stays ...string) func(traces) error {
	return func(found traces) error {
		return filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // just removed
			}
			if err != nil {
				return fmt.Errorf("list files below %s: %w", root, err)
			}
			if path != root && !slices.Contains(stays, path) {
				found[what+" "+path] = true
			}
			return nil
		})
	}
}
