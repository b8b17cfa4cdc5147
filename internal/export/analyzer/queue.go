package analyzer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/waymark-net/waymark/internal/analyze/frame"
)

// queue is a directory with a file for each interval. Names sort in the order in which they were made.
type queue struct {
	dir  string
	size uint64
	lock *os.File

	mu    sync.Mutex
	list  []entry
	bytes uint64
	count int // of list at the start
	next  uint64
}

// entry is a file.
type entry struct {
	name           string
	bytes          uint64
	boot, sequence uint64
	rows           uint32
}

const (
	queueSuffix = ".interval"
	dirMode     = 0o750
	fileMode    = 0o640
)

var errLocked = errors.New("another exporter or agent has its queue there: set export.analyzer.path to another directory")

func openQueue(dir string, size uint64) (*queue, error) {
	q := &queue{dir: dir, size: size}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("export.analyzer.path: %w: set it to a directory that the agent may write", err)
	}
	var err error
	if q.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, fileMode); err != nil {
		return nil, fmt.Errorf("export.analyzer.path: %w: set it to a directory that the agent may write", err)
	}
	if err := syscall.Flock(int(q.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		q.lock.Close()
		return nil, fmt.Errorf("export.analyzer.path %s: %w", dir, errLocked)
	}
	if err := q.read(); err != nil {
		q.lock.Close()
		return nil, fmt.Errorf("export.analyzer.path: %w", err)
	}
	return q, nil
}

// read lists the files. One that was not written whole has another name, and is removed.
func (q *queue) read() error {
	files, err := os.ReadDir(q.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".tmp") {
			_ = os.Remove(filepath.Join(q.dir, f.Name()))
			continue
		}
		if !strings.HasSuffix(f.Name(), queueSuffix) {
			continue
		}
		var number uint64
		one := entry{name: f.Name()}
		if _, err := fmt.Sscanf(f.Name(), "%020d-%016x-%020d-%010d", &number, &one.boot, &one.sequence, &one.rows); err != nil {
			continue
		}
		if info, err := f.Info(); err == nil {
			one.bytes = uint64(info.Size())
		}
		q.next = max(q.next, number+1)
		q.bytes += one.bytes
		q.list = append(q.list, one)
	}
	q.count = len(q.list)
	return nil
}

func (q *queue) close() {
	if q != nil {
		q.lock.Close()
	}
}

func (q *queue) path(e *entry) string { return filepath.Join(q.dir, e.name) }

// add writes a frame; dropped are the records that left to make space.
func (q *queue) add(b []byte, boot, sequence uint64, rows uint32) (dropped int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) > 0 && q.bytes+uint64(len(b)) > q.size {
		dropped += int(q.list[0].rows)
		q.drop(0)
	}
	one := entry{fmt.Sprintf("%020d-%016x-%020d-%010d%s", q.next, boot, sequence, rows, queueSuffix), uint64(len(b)), boot, sequence, rows}
	if err := writeFile(q.path(&one), b); err != nil {
		return dropped, err
	}
	q.next++
	q.bytes += one.bytes
	q.list = append(q.list, one)
	return dropped, nil
}

// writeFile makes a file that is there whole or not at all.
func writeFile(path string, b []byte) error {
	if err := os.WriteFile(path+".tmp", b, fileMode); err != nil {
		return errors.Join(err, os.Remove(path+".tmp"))
	}
	return os.Rename(path+".tmp", path)
}

// drop removes a file; q.mu is held.
func (q *queue) drop(i int) {
	_ = os.Remove(q.path(&q.list[i])) // it may be gone; the analyzer knows it if it comes again
	q.bytes -= q.list[i].bytes
	q.list = slices.Delete(q.list, i, i+1)
}

// oldest are the first frames, of so many bytes at most, unless the first one alone has more; damaged are the records of files
// that are not what was written, which are removed.
func (q *queue) oldest(most int) (batch []entry, body []byte, damaged int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(batch) < len(q.list) {
		one := q.list[len(batch)]
		if len(batch) > 0 && len(body)+int(one.bytes) > most {
			break
		}
		b, err := os.ReadFile(q.path(&one))
		if err == nil {
			var f frame.Frame
			var rest []byte
			if f, rest, err = frame.Next(b); err == nil && (len(rest) > 0 || f.Boot != one.boot || f.Sequence != one.sequence) {
				err = frame.ErrDamaged
			}
		}
		if err != nil {
			damaged += int(one.rows)
			q.drop(len(batch))
			continue
		}
		batch, body = append(batch, one), append(body, b...)
	}
	return batch, body, damaged
}

// remove removes what the analyzer has, and returns how many records that were.
func (q *queue) remove(batch []entry) (records int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range batch {
		records += int(batch[i].rows)
		if at := slices.IndexFunc(q.list, func(e entry) bool { return e.name == batch[i].name }); at >= 0 {
			q.drop(at)
		}
	}
	return records
}

// rename has all intervals of a run be those of another one, numbered from 1; n is how many there are.
func (q *queue) rename(from, to uint64) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.list {
		one := q.list[i]
		if one.boot != from {
			continue
		}
		b, readErr := os.ReadFile(q.path(&one))
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		n++
		frame.Finish(b, to, uint64(n), one.rows)
		number, _, _ := strings.Cut(one.name, "-")
		next := one
		next.name = fmt.Sprintf("%s-%016x-%020d-%010d%s", number, to, n, one.rows, queueSuffix)
		next.boot, next.sequence = to, uint64(n)
		if writeErr := writeFile(q.path(&next), b); writeErr != nil {
			err = errors.Join(err, writeErr)
			continue
		}
		err = errors.Join(err, os.Remove(q.path(&one)))
		q.list[i] = next
	}
	return n, err
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list)
}

func (q *queue) records() (n int) {
	if q == nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.list {
		n += int(q.list[i].rows)
	}
	return n
}
