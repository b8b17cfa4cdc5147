package jsonl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/pipeline"
)

// output is an open file, pipe or terminal.
type output struct {
	f             *os.File
	regular       bool // a file that is ours alone; standard output may be shared
	interruptible bool // a write that waits ends at its deadline
}

func open(path string) (*output, error) {
	if path == Stdout {
		return openStdout()
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o640)
	if err != nil {
		return nil, explain(path, err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, explain(path, err)
	}
	o := &output{f: f, regular: st.Mode().IsRegular(), interruptible: f.SetWriteDeadline(time.Time{}) == nil}
	if o.regular {
		if err := endLine(path, f, st.Size()); err != nil {
			f.Close()
			return nil, explain(path, err)
		}
	}
	return o, nil
}

// openStdout writes to a copy of file descriptor 1: the Go runtime ends the
// process when descriptor 1 or 2 is a pipe that was closed, but reports EPIPE
// on any other.
func openStdout() (*output, error) {
	fd, err := unix.FcntlInt(uintptr(syscall.Stdout), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, explain(Stdout, err)
	}
	return &output{f: os.NewFile(uintptr(fd), "stdout")}, nil
}

// endLine ends a line that a crash left unfinished, so that it spoils no other.
func endLine(path string, f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	r, err := os.Open(path)
	if err != nil {
		return nil // may be appended to but not read: nothing to be known
	}
	defer r.Close()
	var last [1]byte
	if _, err := r.ReadAt(last[:], size-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.Write([]byte{'\n'})
	return err
}

// write writes all of b, or tells how much.
func (o *output) write(b []byte) (int, error) {
	n, err := o.f.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return n, err
}

// takeBack removes the last n bytes written; a file can, a pipe cannot.
func (o *output) takeBack(n int) error {
	if !o.regular {
		return errors.ErrUnsupported
	}
	end, err := o.f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	return o.f.Truncate(end - int64(n))
}

// full says that the output works, but its disk or pipe is full.
func full(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, os.ErrDeadlineExceeded)
}

// remedies are what a user can do about an error.
var remedies = map[syscall.Errno]string{
	unix.ENOSPC:  "make room on its file system; records wait in the queue meanwhile",
	unix.EDQUOT:  "raise the quota or make room; records wait in the queue meanwhile",
	unix.ENOENT:  "make its directory, or set export.jsonl.path to another",
	unix.ENOTDIR: "set export.jsonl.path to a file in a directory",
	unix.EISDIR:  "set export.jsonl.path to a file",
	unix.EACCES:  "let the agent's user write there, or set export.jsonl.path to another file",
	unix.EROFS:   "set export.jsonl.path to a file on a writable file system",
	unix.ENXIO:   "start a reader of the named pipe",
	unix.EBADF:   "start the agent with stdout open, or set export.jsonl.path to a file",
}

// explain adds what was tried and the remedy.
func explain(path string, err error) error {
	tried := "append to " + path
	if path == Stdout {
		tried = "write to stdout"
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return fmt.Errorf("%s: %w", tried, err)
	}
	if errno == unix.EPIPE && path == Stdout {
		return fmt.Errorf("%s: %w: its reader has ended: %w", tried, errno, pipeline.ErrGone)
	}
	if remedy, ok := remedies[errno]; ok {
		return fmt.Errorf("%s: %w: %s", tried, errno, remedy)
	}
	return fmt.Errorf("%s: %w", tried, errno)
}
