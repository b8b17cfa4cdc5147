package headroom

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// locks are byte ranges of a file next to the journal. Byte 0 excludes other
// writers; each agent holds one further byte while it runs, which the kernel
// releases when it ends, however it ends. So who runs is known across PID
// namespaces too.
type locks struct {
	file *os.File
	pid  int
}

// owner is an agent that needs a change.
type owner struct {
	PID  int   `json:"pid"`  // for people
	Byte int64 `json:"byte"` // the one that it holds
}

const (
	excludeByte = 0
	firstOwner  = 1 << 32
	// lockWait is longer than any agent takes for a change.
	lockWait = 10 * time.Second
)

// errLocked: another agent holds the lock for longer than it should.
var errLocked = errors.New("another agent holds the lock for too long")

// openLocks opens the file; create is os.O_CREATE or 0. Users who may not change
// the journal may not hold locks either.
func openLocks(path string, create int) (*locks, error) {
	f, err := os.OpenFile(path, os.O_RDWR|create, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w: run as root", err)
	}
	if err != nil {
		return nil, err
	}
	return &locks{file: f, pid: os.Getpid()}, nil
}

func (l *locks) close() { l.file.Close() }

// fcntl asks about one byte, or locks it. Locks belong to the open file, not to
// the process: each Keeper is an agent.
func (l *locks) fcntl(cmd int, kind int16, at int64) (unix.Flock_t, error) {
	lock := unix.Flock_t{Type: kind, Whence: unix.SEEK_SET, Start: at, Len: 1}
	err := unix.FcntlFlock(l.file.Fd(), cmd, &lock)
	return lock, err
}

// join holds a byte of one's own.
func (l *locks) join() (owner, error) {
	o := owner{PID: l.pid, Byte: firstOwner + rand.Int64N(1<<61)}
	if _, err := l.fcntl(unix.F_OFD_SETLK, unix.F_WRLCK, o.Byte); err != nil {
		return owner{}, fmt.Errorf("lock %s: %w", l.file.Name(), err)
	}
	return o, nil
}

// held reports whether an owner runs; in doubt, it does.
func (l *locks) held(o owner) bool {
	lock, err := l.fcntl(unix.F_OFD_GETLK, unix.F_WRLCK, o.Byte)
	return err != nil || lock.Type != unix.F_UNLCK
}

// exclude waits until no other agent changes the journal.
func (l *locks) exclude() (unlock func(), err error) {
	for deadline := time.Now().Add(lockWait); ; time.Sleep(5 * time.Millisecond) {
		_, err := l.fcntl(unix.F_OFD_SETLK, unix.F_WRLCK, excludeByte)
		switch {
		case err == nil:
			return func() { _, _ = l.fcntl(unix.F_OFD_SETLK, unix.F_UNLCK, excludeByte) }, nil
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES):
			return nil, fmt.Errorf("lock %s: %w", l.file.Name(), err)
		case time.Now().After(deadline):
			return nil, fmt.Errorf("lock %s: %w", l.file.Name(), errLocked)
		}
	}
}
