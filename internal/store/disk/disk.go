// Package disk keeps flow records for days. Input: the intervals of package store as they end.
// Output: an engine of queries. Callers: the agent.
//
// Each interval is written to a log at once. In the background, logs are sealed into Parquet
// files of an hour or less, in the order of time, which any tool can read. Old files are aged:
// the heaviest flows of each hour stay, the rest is summed. Files leave, oldest first, so that
// all of them stay within a bound of bytes.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	hostmemory "github.com/waymark-net/waymark/internal/memory"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// The modes of what is written: flows say who talks to whom.
const (
	dirMode  = 0o750
	fileMode = 0o640
)

// Config says where and how much.
type Config struct {
	Path string
	Size uint64        // bytes of all files
	Time time.Duration // older records leave; 0: only the size bounds them
}

// Deps are what a store is given.
type Deps struct {
	Origin flow.Origin
	Log    *slog.Logger
	Clock  flow.Clock
}

// syncEvery is how often the disk is asked to keep the log. A killed agent loses nothing that
// was written; a host that loses its power may lose so much.
const syncEvery = 5 * time.Second

// Store is the history on disk.
type Store struct {
	cfg  Config
	deps Deps
	lock *os.File

	queue queue
	ids   *identities // of intervals that came from elsewhere

	mu       sync.Mutex
	segments []*segment // oldest first
	log      *log       // nil: none is begun
	counts   obs.HistoryCounts
	failing  string // the last error, until something was written again
	began    time.Time
	dropped  time.Time
	last     uint64
	lastTo   time.Time
	refused  time.Time // when a file could last not be made
}

// ErrLocked says that another agent writes to the directory.
var ErrLocked = errors.New("another agent keeps its history there: set history.path to another directory")

// Open takes the directory, and reads what an earlier agent left.
func Open(cfg Config, deps Deps) (*Store, error) {
	s := &Store{cfg: cfg, deps: deps, queue: queue{wake: make(chan struct{}, 1)}}
	if err := os.MkdirAll(cfg.Path, dirMode); err != nil {
		return nil, fmt.Errorf("create the directory of the history: %w", err)
	}
	var err error
	if s.lock, err = os.OpenFile(filepath.Join(cfg.Path, "lock"), os.O_RDWR|os.O_CREATE, fileMode); err != nil {
		return nil, fmt.Errorf("write to the directory of the history: %w", err)
	}
	if err := syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		s.lock.Close()
		return nil, ErrLocked
	}
	if err := s.recover(); err != nil {
		s.lock.Close()
		return nil, fmt.Errorf("read the history: %w", err)
	}
	return s, nil
}

// recover lists the files, and cuts off what an agent that was killed had not written whole.
func (s *Store) recover() (err error) {
	if s.ids, err = openIdentities(s.cfg.Path); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.cfg.Path)
	if err != nil {
		return err
	}
	var logs []string
	for _, e := range entries { // by name, and so by number
		path := filepath.Join(s.cfg.Path, e.Name())
		switch {
		case strings.HasSuffix(path, tmpSuffix):
			err = os.Remove(path)
		case strings.HasSuffix(path, segmentSuffix):
			s.recoverSegment(path)
		case strings.HasSuffix(path, sumSuffix):
			if _, missing := os.Stat(strings.TrimSuffix(path, sumSuffix) + segmentSuffix); errors.Is(missing, fs.ErrNotExist) {
				err = os.Remove(path)
			}
		case strings.HasSuffix(path, ".wal"):
			logs = append(logs, path)
		}
		if err != nil {
			return err
		}
	}
	s.dropCovered()
	if n := len(s.segments); n > 0 {
		s.lastTo = s.segments[n-1].ended()
	}
	for i, path := range logs {
		if err := s.recoverLog(path, i == len(logs)-1); err != nil {
			return err
		}
	}
	if len(s.segments) > 0 {
		s.began = s.segments[0].began()
	} else if s.log != nil && len(s.log.heads) > 0 {
		s.began = s.log.heads[0].From
	}
	return nil
}

func (s *Store) recoverSegment(path string) {
	seg, err := openSegment(path)
	if err != nil {
		s.counts.Damaged++
		s.deps.Log.Error("history: a file cannot be read, its records are missing", "error", err)
		s.last = max(s.last, lastOf(path)) // no new file may take its name
		return
	}
	s.segments = append(s.segments, seg)
	s.last = max(s.last, seg.last)
}

// dropCovered removes files whose intervals another one has: an agent was killed after it wrote
// the aged one, and before it removed those that it was made of.
func (s *Store) dropCovered() {
	slices.SortFunc(s.segments, func(a, b *segment) int { return int(int64(a.first - b.first)) })
	s.segments = slices.DeleteFunc(s.segments, func(a *segment) bool {
		covered := slices.ContainsFunc(s.segments, func(b *segment) bool {
			return b != a && b != nil && b.aged && !a.aged && b.first <= a.first && a.last <= b.last
		})
		if covered {
			a.remove()
		}
		return covered
	})
}

// recoverLog goes on with the last log, and seals earlier ones. One whose intervals are in a file
// already was to be removed when the agent was killed.
func (s *Store) recoverLog(path string, newest bool) error {
	l, torn, err := openLog(path)
	if err != nil {
		s.counts.Damaged++
		kept := path
		if newest { // it has the name that the next one would get
			kept = damagedName(path)
			if err := os.Rename(path, kept); err != nil {
				return err
			}
		}
		s.deps.Log.Error("history: a log cannot be read, its records are missing", "path", kept, "error", err)
		return nil
	}
	if torn > 0 {
		s.counts.Torn += uint64(torn)
		s.deps.Log.Warn("history: the log ended in the middle of an interval, which is cut off", "path", path, "bytes", torn)
	}
	if err := s.ids.recovered(l.ids); err != nil {
		return err
	}
	n := len(l.heads)
	if n == 0 || s.has(l.heads[n-1].Sequence) {
		return l.remove()
	}
	s.last, s.lastTo = max(s.last, l.heads[n-1].Sequence), l.heads[n-1].To
	s.log = l
	if newest {
		return nil
	}
	return s.Seal()
}

// has reports whether a file that can be read has an interval.
func (s *Store) has(interval uint64) bool {
	return slices.ContainsFunc(s.segments, func(seg *segment) bool { return seg.first <= interval && interval <= seg.last })
}

// Last is the number of the last interval that is kept, of this agent or an earlier one.
func (s *Store) Last() uint64 { return s.last }

// Append has an interval written; it does not wait for the disk, nor for readers.
func (s *Store) Append(e store.Ended) { s.queue.add(e) }

// countOverrun counts the intervals for which the disk was too slow. The lock is held.
func (s *Store) countOverrun() {
	for _, h := range s.queue.overrun() {
		s.lose(h, "the disk is too slow")
	}
}

// lose counts an interval that cannot be kept. The lock is held.
func (s *Store) lose(h store.Head, why string) {
	s.counts.Lost++
	s.counts.LostRecords += uint64(h.Rows)
	if s.failing == "" {
		s.deps.Log.Error("history: intervals are not kept on disk until this ends", "reason", why)
	}
	s.failing = why
}

// growthWriting is how much the heap may grow between two collections of garbage while files are made, in percent. Half of
// what a file takes of memory is garbage soon; with Go's 100 %, all of it would stay until the file is complete.
const growthWriting = 25

// Run writes until ctx ends, then what still waits. What files took of memory while they were made is given back at
// once: that is some megabytes once an hour.
func (s *Store) Run(ctx context.Context) error {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.queue.wake:
		case <-ticker.C:
		}
		restore := hostmemory.CollectSooner(growthWriting)
		made := s.Work()
		restore()
		if made {
			debug.FreeOSMemory()
		}
	}
	s.Work()
	return s.close()
}

// Work writes what waits, and seals, ages and removes what is due; made reports whether it made files.
func (s *Store) Work() (made bool) {
	files := func() uint64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.countOverrun()
		return s.counts.Sealed + s.counts.Aged
	}
	before := files()
	for e, ok := s.queue.take(); ok; e, ok = s.queue.take() {
		s.write(&e)
	}
	s.tend(s.deps.Clock())
	return files() != before
}

// close seals nothing: the next agent goes on with the log.
func (s *Store) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.log != nil {
		if err = s.log.file.Sync(); err == nil {
			err = s.log.file.Close()
		}
		s.log = nil
	}
	return errors.Join(err, s.ids.close(), s.lock.Close())
}

// Close ends a store that Run does not run.
func (s *Store) Close() error { return s.close() }

// write adds an interval to the log, or counts it. Only the goroutine of Run calls it.
func (s *Store) write(e *store.Ended) {
	if err := s.put(e, nil); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counts.Errors++
		s.lose(e.Head(), err.Error())
	}
}

// put adds an interval to the log, with the identity that it came with; nil: it has none.
func (s *Store) put(e *store.Ended, id *Identity) error {
	from, to := e.Period()
	if s.due(from) && s.mayTry() {
		err := s.Seal()
		if err != nil && s.log != nil {
			s.log.refused++
		}
		s.try("seal a log", err)
	}
	// Once may be a disk that was full for a moment.
	if s.due(from) && s.log.refused > 1 && uint64(s.log.size) >= s.mostLog() {
		s.giveUp()
	}
	if err := s.writeLog(e, id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing != "" && !s.due(from) { // else the log still waits to be sealed
		s.deps.Log.Info("history: intervals are kept again", "lost", s.counts.Lost)
		s.failing = ""
	}
	if to.Before(s.lastTo) {
		s.counts.ClockSteps++
	}
	if s.began.IsZero() {
		s.began = from
	}
	s.last, s.lastTo = e.Sequence(), to
	s.counts.Intervals++
	s.counts.Records += uint64(e.Len())
	return nil
}

func (s *Store) writeLog(e *store.Ended, id *Identity) error {
	l := s.log
	if l == nil {
		var err error
		if l, err = createLog(s.cfg.Path, e.Sequence()); err != nil {
			return err
		}
	}
	s.mu.Lock()
	err := l.append(e, id)
	s.log = l
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return l.sync(s.deps.Clock(), syncEvery)
}

// tryEvery is how often a file is tried to be made that could not be: each time, many records are read for it.
const tryEvery = time.Minute

// mayTry reports whether it is time to try again.
func (s *Store) mayTry() bool {
	age := s.deps.Clock().Sub(s.refused)
	return age < 0 || age >= tryEvery
}

// try counts an error of what is tried again later. Only the goroutine of Run calls it.
func (s *Store) try(what string, err error) {
	if err == nil {
		return
	}
	s.refused = s.deps.Clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Errors++
	if s.failing == "" {
		s.deps.Log.Error("history: cannot "+what, "error", err)
	}
	s.failing = what + ": " + err.Error()
}

var _ query.Source = (*Store)(nil)
