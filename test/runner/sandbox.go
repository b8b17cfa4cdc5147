package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sandbox is where tests run: network and mounts of their own, with an own /run, /sys/fs/bpf and TMPDIR. They can't
// reach the machine's interfaces, and what they leave is all that is there. The runner enters one, and each test
// binary another inside: packages that run at the same time do not see each other. BPF objects and processes have no
// such walls; see bpf.go and processes.go for how they are distinguished from others'.
type sandbox struct {
	tmp string
}

// enterSandbox moves the calling thread, which must stay locked to its goroutine, and what it starts from then on.
func enterSandbox() (*sandbox, error) {
	tmp, err := shortTemp()
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	box := &sandbox{tmp: tmp}
	// As /tmp: tests may start programs of other users.
	if err := os.Chmod(tmp, 0o777|os.ModeSticky); err != nil {
		return nil, fmt.Errorf("open the temporary folder to all: %w", err)
	}
	if err := box.enter(); err != nil {
		box.close()
		return nil, fmt.Errorf("make a sandbox for the tests: %w", err)
	}
	return box, nil
}

// shortTemp makes a folder with the shortest name that is free: tests make UNIX sockets below it, whose paths have at
// most 107 bytes.
func shortTemp() (string, error) {
	for i := 0; ; i++ {
		dir := filepath.Join(os.TempDir(), "wm"+strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
	}
}

func (box *sandbox) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare mounts and network: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := mountSys(box.tmp); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount an own /run: %w", err)
	}
	if err := mountNetns(); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return adoptOrphans()
}

// mountSys mounts a sysfs that shows the new network namespace, an empty bpffs, and again what else was there.
func mountSys(tmp string) error {
	var moved []string
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/kernel/debug", "/sys/kernel/tracing"} {
		if !isMountPoint(dir) {
			continue
		}
		aside := filepath.Join(tmp, filepath.Base(dir))
		if err := os.Mkdir(aside, 0o700); err != nil {
			return fmt.Errorf("make a place for %s: %w", dir, err)
		}
		if err := unix.Mount(dir, aside, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", dir, err)
		}
		moved = append(moved, dir)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount an own /sys: %w", err)
	}
	for _, dir := range moved {
		aside := filepath.Join(tmp, filepath.Base(dir))
		if err := unix.Mount(aside, dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s back: %w", dir, err)
		}
		if err := os.Remove(aside); err != nil {
			return fmt.Errorf("remove the place for %s: %w", dir, err)
		}
	}
	if err := unix.Mount("bpf", bpffs, "bpf", 0, "mode=700"); err != nil {
		return fmt.Errorf("mount an own %s: %w", bpffs, err)
	}
	return nil
}

// mountNetns does what the first "ip netns add" on a host does, and nobody undoes.
func mountNetns() error {
	const dir = "/run/netns"
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of network namespaces: %w", err)
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	return nil
}

// isMountPoint: a mount has another device than the folder above.
func isMountPoint(dir string) bool {
	var at, above unix.Stat_t
	return unix.Stat(dir, &at) == nil && unix.Stat(filepath.Dir(dir), &above) == nil && at.Dev != above.Dev
}

// env is that of programs in the sandbox.
func (box *sandbox) env() []string {
	// No network: the go command must not look for it.
	return append(os.Environ(), "TMPDIR="+box.tmp, "GOPROXY=off")
}

// close removes what the host would keep; the rest goes with the process.
func (box *sandbox) close() {
	if err := os.RemoveAll(box.tmp); err != nil {
		fmt.Fprintln(os.Stderr, "runner: remove the temporary folder:", err)
	}
}
