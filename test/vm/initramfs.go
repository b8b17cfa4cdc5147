package vm

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// archive writes an initramfs: a cpio archive in the "newc" format
// (Documentation/driver-api/early-userspace/buffer-format.rst of the kernel).
type archive struct {
	w *bufio.Writer
	// err is the first one; later calls do nothing.
	err  error
	ino  uint32
	dirs map[string]bool
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<20), dirs: map[string]bool{"/": true}}
}

// node writes a device, such as the console that process 1 starts with.
func (a *archive) node(name string, major, minor uint32) {
	a.parents(name)
	a.entry(name, unix.S_IFCHR|0o600, major, minor, 0, nil)
}

// bytes writes a file of the given content.
func (a *archive) bytes(name string, mode os.FileMode, data string) {
	a.parents(name)
	a.entry(name, unix.S_IFREG|uint32(mode.Perm()), 0, 0, int64(len(data)), strings.NewReader(data))
}

// copy writes a file of the host, or a directory with all below it; links are followed.
func (a *archive) copy(name, host string) {
	info, err := os.Stat(host)
	if err != nil {
		a.fail(fmt.Errorf("pack %s: %w", name, err))
		return
	}
	if !info.IsDir() {
		a.file(name, host, info)
		return
	}
	entries, err := os.ReadDir(host)
	if err != nil {
		a.fail(fmt.Errorf("pack %s: %w", name, err))
		return
	}
	a.parents(name + "/.") // an empty folder is one too
	for _, e := range entries {
		a.copy(path.Join(name, e.Name()), filepath.Join(host, e.Name()))
	}
}

func (a *archive) file(name, host string, info os.FileInfo) {
	f, err := os.Open(host)
	if err != nil {
		a.fail(fmt.Errorf("pack %s: %w", name, err))
		return
	}
	defer f.Close()
	a.parents(name)
	a.entry(name, unix.S_IFREG|uint32(info.Mode().Perm()), 0, 0, info.Size(), f)
}

// close writes the trailer and says what went wrong, if anything.
func (a *archive) close() error {
	a.entry("/TRAILER!!!", 0, 0, 0, 0, nil)
	if a.err == nil {
		a.err = a.w.Flush()
	}
	return a.err
}

// parents writes the directories above name that are not there yet.
func (a *archive) parents(name string) {
	dir := path.Dir(name)
	if a.dirs[dir] {
		return
	}
	a.parents(dir)
	a.dirs[dir] = true
	a.entry(dir, unix.S_IFDIR|0o755, 0, 0, 0, nil)
}

func (a *archive) entry(name string, mode, major, minor uint32, size int64, data io.Reader) {
	if a.err != nil {
		return
	}
	if size >= 1<<32 {
		a.fail(fmt.Errorf("pack %s: %d bytes do not fit a newc archive", name, size))
		return
	}
	a.ino++
	name = strings.TrimPrefix(name, "/") + "\x00"
	const owner, links, mtime, fsMajor, fsMinor, check = 0, 1, 0, 0, 0, 0
	n, err := a.w.WriteString("070701")
	for _, v := range []uint32{
		a.ino, mode, owner, owner, links, mtime, uint32(size),
		fsMajor, fsMinor, major, minor, uint32(len(name)), check,
	} {
		var k int
		if err == nil {
			k, err = fmt.Fprintf(a.w, "%08X", v)
		}
		n += k
	}
	if err == nil {
		_, err = a.w.WriteString(name + padding(int64(n+len(name))))
	}
	if err == nil && data != nil {
		// Exactly size bytes, also of a file that grows meanwhile.
		_, err = io.CopyN(a.w, data, size)
	}
	if err == nil {
		_, err = a.w.WriteString(padding(size))
	}
	if err != nil {
		a.fail(fmt.Errorf("pack %s: %w", strings.TrimSuffix(name, "\x00"), err))
	}
}

func (a *archive) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// padding brings n bytes to a multiple of four.
func padding(n int64) string { return "\x00\x00\x00"[:(4-n%4)%4] }
