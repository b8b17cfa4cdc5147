package topology

import (
	"fmt"
	"os"
	"path/filepath"
)

// netnsPaths lead to every network namespace that is visible here: the calling
// thread's own, those with a name, those of processes. Some lead to the same one.
func netnsPaths() ([]string, error) {
	paths := []string{"/proc/thread-self/ns/net"}
	for _, pattern := range []string{filepath.Join(NetnsDir, "*"), "/proc/[0-9]*/ns/net"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	return paths, nil
}

// FindNetns opens the namespace with that id: the calling thread's own, one with
// a name, or that of a process. Close it after use.
func FindNetns(id NetnsID) (*Netns, error) {
	paths, err := netnsPaths()
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if at, err := StatNetns(path); err != nil || at != id {
			continue
		}
		// The path may lead elsewhere by now.
		if n, err := openNetnsFile(path); err == nil {
			if n.ID() == id {
				return n, nil
			}
			n.Close()
		}
	}
	return nil, fmt.Errorf("network namespace with inode %d: %w", id.Ino, os.ErrNotExist)
}

// EachNetns calls visit once for each network namespace that is visible here, in
// an order in which named ones come early, until it returns false. The namespace
// is open until visit returns.
func EachNetns(visit func(*Netns) bool) error {
	paths, err := netnsPaths()
	if err != nil {
		return err
	}
	seen := map[NetnsID]bool{}
	for _, path := range paths {
		if id, err := StatNetns(path); err != nil || seen[id] {
			continue
		}
		n, err := openNetnsFile(path)
		if err != nil {
			continue // it is gone by now
		}
		more := seen[n.ID()] || visit(n)
		seen[n.ID()] = true
		n.Close()
		if !more {
			return nil
		}
	}
	return nil
}
