package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/topology"
)

// AddNetns makes a named network namespace, as "ip netns add" does.
func AddNetns(name string) error {
	if err := shareNetnsDir(); err != nil {
		return err
	}
	file := filepath.Join(topology.NetnsDir, name)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("make network namespace %q: %w", name, err)
	}
	f.Close()
	if err := bindNewNetns(file); err != nil {
		return errors.Join(fmt.Errorf("make network namespace %q: %w", name, err), os.Remove(file))
	}
	return nil
}

// bindNewNetns makes a namespace and gives it a name, on a thread that goes back
// home afterwards.
func bindNewNetns(file string) error {
	home, err := topology.OpenNetns("")
	if err != nil {
		return err
	}
	defer home.Close()
	return home.Do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", file, "none", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount on %s: %w", file, err)
		}
		return nil
	})
}

// shareNetnsDir makes the directory of names a shared mount, as iproute2 wants
// it: otherwise a later "ip netns add" mounts a copy over ours, and names that
// are taken away above live on below. It stays when the lab goes, like iproute2's.
func shareNetnsDir() error {
	dir := topology.NetnsDir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	share := func() error { return unix.Mount("", dir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if errors.Is(err, unix.EINVAL) { // not a mount point yet
		if err = unix.Mount(dir, dir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = share()
		}
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	return nil
}

// DeleteNetns takes a name away, whatever is left of it: a namespace, or the
// plain file of one that was never finished. A name that is not there is fine.
func DeleteNetns(name string) error {
	file := filepath.Join(topology.NetnsDir, name)
	for {
		err := unix.Unmount(file, unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break // nothing mounted any more
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", file, err)
		}
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("delete network namespace %q: %w", name, err)
	}
	return nil
}
