package topology

import (
	"fmt"
	"os"
	"path/filepath"
)

// FindNetns opens the namespace with that id: the calling thread's own, one with
// a name, or that of a process. Close it after use.
func FindNetns(id NetnsID) (*Netns, error) {
	paths := []string{"/proc/thread-self/ns/net"}
	for _, pattern := range []string{filepath.Join(NetnsDir, "*"), "/proc/[0-9]*/ns/net"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
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
