// Package queue keeps what waits to be sent in a directory, one file each, so that it outlives the agent. Input: bytes with a number.
// Output: the same, in the order of the numbers, until they are done with. Callers: exporters that send whole intervals.
//
// The files are bounded in bytes: the oldest leave first, and their records are counted. A file has its name only when it is whole.
package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// The modes of what is written: flows say who talks to whom.
const (
	dirMode  = 0o750
	fileMode = 0o640
)

const (
	suffix    = ".interval"
	tmpSuffix = ".tmp"
)

// ErrLocked says that another agent uses the directory.
var ErrLocked = errors.New("another agent, or another exporter, keeps its queue there: set queue_path to another directory")

// Entry is what waits.
type Entry struct {
	Number  uint64 // entries leave in the order of numbers
	Run     uint64 // of the agent that wrote it: with the number, it is unique
	Records int
	bytes   int64
}

func (e Entry) name() string { return fmt.Sprintf("%020d-%x-%d%s", e.Number, e.Run, e.Records, suffix) }

// Queue is a directory. One goroutine puts, another takes.
type Queue struct {
	dir   string
	limit uint64
	run   uint64
	lock  *os.File

	mu      sync.Mutex
	entries []Entry
	taken   bool // the first one is being sent
	counts  Counts
	ready   chan struct{} // holds one value once there is something to take
}

// Counts are what the queue has, and what it lost.
type Counts struct {
	Entries, Records int
	Bytes, Limit     uint64
	Full             uint64 // records that left because of the limit
	Damaged          uint64 // records of files that could not be read
}

// Open takes a directory, and what an earlier agent left there. run is a number that no other run of an agent has.
func Open(dir string, limit, run uint64) (*Queue, error) {
	q := &Queue{dir: dir, limit: limit, run: run, ready: make(chan struct{}, 1)}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("create the directory of the queue: %w", err)
	}
	var err error
	if q.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, fileMode); err != nil {
		return nil, fmt.Errorf("write to the directory of the queue: %w", err)
	}
	if err = syscall.Flock(int(q.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(ErrLocked, q.lock.Close())
	}
	if err := q.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("read the queue: %w", err), q.lock.Close())
	}
	return q, nil
}

func (q *Queue) recover() error {
	list, err := os.ReadDir(q.dir) // by name, and so by number
	if err != nil {
		return err
	}
	for _, f := range list {
		if strings.HasSuffix(f.Name(), tmpSuffix) {
			if err := os.Remove(filepath.Join(q.dir, f.Name())); err != nil {
				return err
			}
			continue
		}
		e, ok := parse(f.Name())
		if !ok {
			continue
		}
		info, err := f.Info()
		if err != nil {
			return err
		}
		e.bytes = info.Size()
		q.add(e)
	}
	return nil
}

func parse(name string) (e Entry, ok bool) {
	rest, ok := strings.CutSuffix(name, suffix)
	parts := strings.Split(rest, "-")
	if !ok || len(parts) != 3 {
		return e, false
	}
	var errs [3]error
	e.Number, errs[0] = strconv.ParseUint(parts[0], 10, 64)
	e.Run, errs[1] = strconv.ParseUint(parts[1], 16, 64)
	e.Records, errs[2] = strconv.Atoi(parts[2])
	return e, errors.Join(errs[:]...) == nil
}

// add needs q.mu, unless nobody else knows the queue.
func (q *Queue) add(e Entry) {
	q.entries = append(q.entries, e)
	q.counts.Bytes += uint64(e.bytes)
	q.counts.Records += e.Records
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Put has bytes wait. It returns once the disk has them.
func (q *Queue) Put(number uint64, records int, b []byte) error {
	e := Entry{Number: number, Run: q.run, Records: records, bytes: int64(len(b))}
	path := filepath.Join(q.dir, e.name())
	f, err := os.OpenFile(path+tmpSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+tmpSuffix, path)
	}
	if err != nil {
		_ = os.Remove(path + tmpSuffix) // the next Open does it else
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(e)
	return q.shrink()
}

// shrink has the oldest entries leave, except the one that is being sent. It needs q.mu.
func (q *Queue) shrink() error {
	at := 0
	if q.taken {
		at = 1
	}
	for q.counts.Bytes > q.limit && at < len(q.entries) {
		q.counts.Full += uint64(q.entries[at].Records)
		if err := q.remove(at); err != nil {
			return err
		}
	}
	return nil
}

// remove needs q.mu.
func (q *Queue) remove(at int) error {
	e := q.entries[at]
	q.entries = append(q.entries[:at:at], q.entries[at+1:]...)
	q.counts.Bytes -= uint64(e.bytes)
	q.counts.Records -= e.Records
	if err := os.Remove(filepath.Join(q.dir, e.name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Ready has a value when there may be something to take.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// Take reads the oldest entry, which stays until Done; ok: there is one. A file that cannot be read leaves, and is counted.
func (q *Queue) Take() (e Entry, b []byte, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.entries) > 0 {
		e = q.entries[0]
		b, err := os.ReadFile(filepath.Join(q.dir, e.name()))
		if err == nil && int64(len(b)) == e.bytes {
			q.taken = true
			return e, b, true
		}
		q.counts.Damaged += uint64(e.Records)
		_ = q.remove(0) // it may be gone
	}
	return e, nil, false
}

// Done removes the entry that was taken.
func (q *Queue) Done() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken = false
	return q.remove(0)
}

// Last is the largest number that the queue ever had; 0: it had none.
func (q *Queue) Last() uint64 {
	b, err := os.ReadFile(filepath.Join(q.dir, "last"))
	n, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		n = 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.entries {
		n = max(n, e.Number)
	}
	return n
}

// Keep has Last know a number when its entry has left.
func (q *Queue) Keep(number uint64) error {
	path := filepath.Join(q.dir, "last")
	if err := os.WriteFile(path+tmpSuffix, strconv.AppendUint(nil, number, 10), fileMode); err != nil {
		return err
	}
	return os.Rename(path+tmpSuffix, path)
}

// Counts are those of this moment.
func (q *Queue) Counts() Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.counts
	c.Entries, c.Limit = len(q.entries), q.limit
	return c
}

// Close gives the directory back.
func (q *Queue) Close() error { return q.lock.Close() }
