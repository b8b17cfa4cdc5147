package topology

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// NetnsDir is where network namespaces have their names, as iproute2 keeps them.
const NetnsDir = "/run/netns"

// nsfsMagic is the file system type of an open namespace (linux/magic.h).
const nsfsMagic = 0x6e736673

// ErrNotNetns is wrapped when a name in NetnsDir is a plain file. It is one for
// a moment while a namespace is made, and stays one when its maker was killed.
var ErrNotNetns = errors.New("not a network namespace")

// NetnsID identifies a namespace while it lives, whatever its names.
type NetnsID struct{ Dev, Ino uint64 }

// Netns is an open network namespace. It stays the same namespace though its
// name be deleted or given to another, and it keeps the namespace alive.
type Netns struct {
	file *os.File
	id   NetnsID
}

// OpenNetns opens the namespace of that name; the empty name is the calling
// thread's own. Close it after use.
func OpenNetns(name string) (*Netns, error) {
	if name == "" {
		return openNetnsFile("/proc/thread-self/ns/net")
	}
	n, err := openNetnsFile(filepath.Join(NetnsDir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("network namespace %q: %w (ip netns list shows what exists)", name, os.ErrNotExist)
	}
	return n, err
}

func openNetnsFile(file string) (*Netns, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	fd := int(f.Fd())
	id, err := netnsID(
		func(fs *unix.Statfs_t) error { return unix.Fstatfs(fd, fs) },
		func(st *unix.Stat_t) error { return unix.Fstat(fd, st) },
	)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open network namespace %s: %w", file, err)
	}
	return &Netns{file: f, id: id}, nil
}

// StatNetns identifies the namespace behind a path: a name in NetnsDir, or
// /proc/PID/ns/net. ErrNotNetns says the path is something else.
func StatNetns(path string) (NetnsID, error) {
	id, err := netnsID(
		func(fs *unix.Statfs_t) error { return unix.Statfs(path, fs) },
		func(st *unix.Stat_t) error { return unix.Stat(path, st) },
	)
	if err != nil && !errors.Is(err, ErrNotNetns) {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return id, err
}

// netnsID identifies what statfs and stat tell of.
func netnsID(statfs func(*unix.Statfs_t) error, stat func(*unix.Stat_t) error) (NetnsID, error) {
	var fs unix.Statfs_t
	if err := statfs(&fs); err != nil {
		return NetnsID{}, fmt.Errorf("statfs: %w", err)
	}
	if fs.Type != nsfsMagic {
		return NetnsID{}, ErrNotNetns
	}
	var st unix.Stat_t
	if err := stat(&st); err != nil {
		return NetnsID{}, fmt.Errorf("stat: %w", err)
	}
	// The type of st_dev differs between architectures.
	return NetnsID{Dev: uint64(st.Dev), Ino: st.Ino}, nil
}

// ID identifies the namespace.
func (n *Netns) ID() NetnsID { return n.id }

// Fd is the open file, valid until Close.
func (n *Netns) Fd() int { return int(n.file.Fd()) }

// Close lets go of the namespace.
func (n *Netns) Close() error { return n.file.Close() }

// Do runs fn in the namespace, on a thread of its own, and waits for it. Sockets
// and processes made by fn stay in the namespace; goroutines that it starts do
// not run there. runtime.Goexit in fn (t.FailNow) ends the caller too.
func (n *Netns) Do(fn func() error) error {
	var err error
	returned := false
	onLockedThread(func() (clean bool) {
		home, openErr := OpenNetns("")
		if openErr != nil {
			err, returned = openErr, true
			return true
		}
		defer home.Close()
		defer func() { clean = home.enter() == nil }()
		if err = n.enter(); err == nil {
			err = fn()
		}
		returned = true
		return false
	})
	if !returned {
		runtime.Goexit()
	}
	return err
}

// onLockedThread runs fn on a thread that nothing else uses and waits for it.
// Unless fn leaves it clean, the thread ends, so that no other goroutine ever
// runs in the wrong namespace.
func onLockedThread(fn func() (clean bool)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot end: it would stay behind in the namespace
			// and show it as the whole process's. Held here, it is not chosen again.
			onLockedThread(fn)
			runtime.UnlockOSThread()
			return
		}
		clean := false
		defer func() {
			if clean {
				runtime.UnlockOSThread()
			}
		}()
		clean = fn()
	}()
	<-done
}

// enter moves the calling thread into the namespace; where it is there already,
// that takes no privilege.
func (n *Netns) enter() error {
	if id, err := StatNetns("/proc/thread-self/ns/net"); err == nil && id == n.id {
		return nil
	}
	if err := unix.Setns(n.Fd(), unix.CLONE_NEWNET); err != nil {
		err = fmt.Errorf("enter network namespace %s: %w", n.file.Name(), err)
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: run as root or with CAP_SYS_ADMIN", err)
		}
		return err
	}
	return nil
}

// InNetns runs fn in the named namespace as Netns.Do does; the empty name is the
// own namespace.
func InNetns(name string, fn func() error) error {
	n, err := OpenNetns(name)
	if err != nil {
		return err
	}
	defer n.Close()
	return n.Do(fn)
}
