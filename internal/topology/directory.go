package topology

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// netnsDirectory tells when names of network namespaces appear or vanish.
type netnsDirectory struct {
	dir  string
	fd   int
	file *os.File // the same, for reading without a thread
}

func openNetnsDirectory(dir string) (*netnsDirectory, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	d := &netnsDirectory{dir: dir, fd: fd, file: os.NewFile(uintptr(fd), "inotify")}
	if err := d.arm(); err != nil {
		d.file.Close()
		return nil, err
	}
	return d, nil
}

// arm watches the directory; while it does not exist, its parent for it to come.
// Adding a watch again is without effect.
func (d *netnsDirectory) arm() error {
	const names = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM
	_, err := unix.InotifyAddWatch(d.fd, d.dir, names|unix.IN_DELETE_SELF)
	if errors.Is(err, unix.ENOENT) {
		if _, err = unix.InotifyAddWatch(d.fd, filepath.Dir(d.dir), names); err != nil {
			return fmt.Errorf("watch %s: %w", filepath.Dir(d.dir), err)
		}
		// It may have come between the two.
		if _, err = unix.InotifyAddWatch(d.fd, d.dir, names|unix.IN_DELETE_SELF); errors.Is(err, unix.ENOENT) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("watch %s: %w", d.dir, err)
	}
	return nil
}

// listen pokes changed after every change until the directory is closed. What
// changed is for the reader of the directory to find out.
func (d *netnsDirectory) listen(changed chan<- struct{}) {
	buf := make([]byte, 4096)
	for {
		if _, err := d.file.Read(buf); err != nil {
			return
		}
		_ = d.arm()
		select {
		case changed <- struct{}{}:
		default: // one poke is waiting already
		}
	}
}

func (d *netnsDirectory) close() { d.file.Close() }

// listNetns lists the namespaces by name. pending is true when a name is not
// (yet) a namespace.
func listNetns(dir string) (found map[string]NetnsID, pending bool, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, false, fmt.Errorf("list network namespaces: %w", err)
	}
	found = map[string]NetnsID{}
	for _, e := range entries {
		id, err := StatNetns(filepath.Join(dir, e.Name()))
		if err != nil {
			pending = true
			continue
		}
		found[e.Name()] = id
	}
	return found, pending, nil
}
