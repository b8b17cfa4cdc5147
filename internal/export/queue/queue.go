// Package queue keeps what waits to be sent in a directory, one file each, so that it outlives the agent. Input: bytes with an identity.
// Output: the same, in the order in which they came, until they are done with. Caller: package interval.
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

// ErrLocked says that somebody else uses the directory.
var ErrLocked = errors.New("another agent, or another exporter, keeps its queue there: set it to another directory")

// Entry is what waits. Its run and number are its identity: no other entry has both.
type Entry struct {
	Run     uint64 // of the agent that wrote it
	Number  uint64
	Records int
	place   uint64 // files are in the order of these
	bytes   int64
	file    string // its name
}

// named gives an entry the name of its file.
func (e Entry) named() Entry {
	e.file = fmt.Sprintf("%020d-%016x-%020d-%010d%s", e.place, e.Run, e.Number, e.Records, suffix)
	return e
}

// Queue is a directory. One goroutine puts, another one takes.
type Queue struct {
	dir   string
	limit uint64
	lock  *os.File

	mu      sync.Mutex
	entries []Entry
	taken   int // so many of the first ones are being sent
	place   uint64
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

// Open takes a directory, and what an earlier agent left there.
func Open(dir string, limit uint64) (*Queue, error) {
	q := &Queue{dir: dir, limit: limit, ready: make(chan struct{}, 1)}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("%w: set it to a directory that the agent may write", err)
	}
	var err error
	if q.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, fileMode); err != nil {
		return nil, fmt.Errorf("%w: set it to a directory that the agent may write", err)
	}
	if err = syscall.Flock(int(q.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(ErrLocked, q.lock.Close())
	}
	entries, err := list(dir, func(torn string) { _ = os.Remove(torn) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the queue: %w", err), q.lock.Close())
	}
	for i, e := range entries {
		if i > 0 && e.place == entries[i-1].place { // an agent was killed in Renumber: both are one
			_ = os.Remove(filepath.Join(dir, e.file)) // it is tried again by the next Open else
			continue
		}
		q.add(e)
	}
	return q, nil
}

// list reads the names of a directory, and so by place. torn gets the files that were not written whole.
func list(dir string, torn func(path string)) (entries []Entry, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), tmpSuffix) {
			torn(filepath.Join(dir, f.Name()))
			continue
		}
		e, ok := parse(f.Name())
		if !ok {
			continue
		}
		if info, err := f.Info(); err == nil { // else it is damaged
			e.bytes = info.Size()
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func parse(name string) (e Entry, ok bool) {
	rest, ok := strings.CutSuffix(name, suffix)
	e.file = name
	if _, err := fmt.Sscanf(rest, "%d-%x-%d-%d", &e.place, &e.Run, &e.Number, &e.Records); err == nil {
		return e, ok
	}
	_, err := fmt.Sscanf(rest, "%d-%x-%d", &e.place, &e.Run, &e.Records) // Waymark 0.1 wrote this for ClickHouse
	e.Number = e.place
	return e, ok && err == nil
}

// add needs q.mu, unless nobody else knows the queue.
func (q *Queue) add(e Entry) {
	q.entries = append(q.entries, e)
	q.place = max(q.place, e.place)
	q.counts.Bytes += uint64(e.bytes)
	q.counts.Records += e.Records
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Put has bytes wait. It returns once the disk has them. What does not fit next to them leaves.
func (q *Queue) Put(run, number uint64, records int, b []byte) error {
	q.mu.Lock()
	e := Entry{Run: run, Number: number, Records: records, place: q.place + 1, bytes: int64(len(b))}.named()
	q.mu.Unlock()
	if err := write(filepath.Join(q.dir, e.file), b); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var err error
	for len(q.entries) > q.taken && q.counts.Bytes+uint64(len(b)) > q.limit {
		q.counts.Full += uint64(q.entries[q.taken].Records)
		err = errors.Join(err, q.remove(q.taken))
	}
	q.add(e)
	return err
}

// write makes a file that is there whole or not at all.
func write(path string, b []byte) error {
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
	return syncDirectory(filepath.Dir(path))
}

// syncDirectory has names of files outlive a loss of power.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// remove needs q.mu.
func (q *Queue) remove(at int) error {
	e := q.entries[at]
	q.entries = append(q.entries[:at:at], q.entries[at+1:]...)
	q.counts.Bytes -= uint64(e.bytes)
	q.counts.Records -= e.Records
	if err := os.Remove(filepath.Join(q.dir, e.file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Ready has a value when there may be something to take.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// Take reads the oldest entries, of so many bytes at most, but one at least. They stay until Done, or the next Take. Files that
// check does not accept leave, and are counted.
func (q *Queue) Take(most int, check func(Entry, []byte) error) (batch []Entry, body []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(batch) < len(q.entries) {
		e := q.entries[len(batch)]
		if len(batch) > 0 && len(body)+int(e.bytes) > most {
			break
		}
		b, err := os.ReadFile(filepath.Join(q.dir, e.file))
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) {
			break // it is there, and can be read later
		}
		if err != nil || int64(len(b)) != e.bytes || check(e, b) != nil {
			q.counts.Damaged += uint64(e.Records)
			_ = q.remove(len(batch)) // it may be gone
			continue
		}
		if batch = append(batch, e); len(batch) == 1 {
			body = b
		} else {
			body = append(body, b...)
		}
	}
	q.taken = len(batch)
	return batch, body
}

// Done removes the first of the entries that were taken; the others wait again.
func (q *Queue) Done(n int) (err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken = 0
	for range n {
		err = errors.Join(err, q.remove(0))
	}
	return err
}

// Renumber has all entries of a run be those of another one, numbered from 1; n is how many there are. rewrite changes the identity in
// the bytes. Nothing is taken meanwhile.
func (q *Queue) Renumber(from, to uint64, rewrite func(b []byte, next Entry)) (n uint64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, e := range q.entries {
		if e.Run != from {
			continue
		}
		b, readErr := os.ReadFile(filepath.Join(q.dir, e.file))
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		next := e
		next.Run, next.Number = to, n+1
		next = next.named()
		rewrite(b, next)
		if writeErr := write(filepath.Join(q.dir, next.file), b); writeErr != nil {
			err = errors.Join(err, writeErr)
			continue
		}
		err = errors.Join(err, os.Remove(filepath.Join(q.dir, e.file)))
		q.entries[i] = next
		n++
	}
	return n, err
}

// Last is the largest number that the queue in a directory ever had; 0: it had none.
func Last(dir string) uint64 {
	b, err := os.ReadFile(filepath.Join(dir, "last"))
	n, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		n = 0
	}
	entries, _ := list(dir, func(string) {}) // Open reports what is wrong
	for i := range entries {
		n = max(n, entries[i].Number)
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
