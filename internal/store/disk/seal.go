package disk

import (
	"errors"
	"time"

	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/store"
)

// maxLog is how large a log gets, whatever it holds, and sealRows how many rows: so few that with
// the next interval they are one row group, unless it has very many.
const (
	maxLog   = 64 << 20
	sealRows = groupRows * 3 / 4
)

// due reports whether the log is to be sealed before an interval: it nearly fills a row group, or the
// interval is of another hour.
func (s *Store) due(from time.Time) bool {
	l := s.log
	return l != nil && len(l.heads) > 0 &&
		(l.rows >= sealRows || l.size >= maxLog || !l.heads[0].From.Truncate(time.Hour).Equal(from.Truncate(time.Hour)))
}

// Seal makes a file of the log, and removes the log. Until the file has its name, the log is
// what counts; after that, the file.
func (s *Store) Seal() error {
	l := s.log
	if l == nil {
		return nil
	}
	if err := s.ids.sync(); err != nil {
		return err
	}
	path := segmentName(s.cfg.Path, l.heads[0].Sequence, l.heads[len(l.heads)-1].Sequence, false)
	w, err := newWriter(path, s.deps.Origin, l.with)
	if err != nil {
		return err
	}
	end, err := readLog(l.file, func(d *store.Decoder, b []byte) error { return d.Blocks(b, w.begin, w.block) })
	if err != nil {
		w.abort()
		return err
	}
	if end < l.size {
		s.count(func(c *obs.HistoryCounts) { c.Damaged++ })
		s.deps.Log.Error("history: the log is not what was written, intervals are lost", "path", l.path, "intervals", len(l.heads)-len(w.heads), "byte", end)
	}
	if len(w.heads) == 0 {
		w.abort()
		return s.sealed(l, nil)
	}
	if err := w.end(0); err != nil {
		return err
	}
	seg, err := s.added(path)
	if err != nil {
		return err
	}
	return s.sealed(l, seg)
}

// mostLog is how large a log gets that cannot be sealed: it must not take the place of all files.
func (s *Store) mostLog() uint64 { return max(min(s.cfg.Size/2, 4*maxLog), 1) }

// giveUp removes a log that cannot be sealed, and counts what it has: the next one may be sealed again, as there is space,
// or another record, where that was the reason. Newer intervals are worth more than older ones.
func (s *Store) giveUp() {
	l := s.log
	s.try("write which intervals came", s.ids.sync())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = nil
	if len(s.segments) == 0 {
		s.dropped = l.heads[len(l.heads)-1].To
	}
	s.counts.GivenUp += uint64(l.rows)
	s.deps.Log.Error("history: a log that cannot be sealed is removed: its records are lost",
		"path", l.path, "bytes", l.size, "intervals", len(l.heads), "records", l.rows, "reason", s.failing)
	if err := l.remove(); err != nil {
		s.counts.Errors++
		s.deps.Log.Error("history: cannot remove a log", "error", err)
	}
	s.refused = time.Time{} // the next one need not wait
}

// sealed puts a file in the place of the log; nil: nothing of the log can be read.
func (s *Store) sealed(l *log, seg *segment) error {
	s.mu.Lock()
	if seg != nil {
		s.segments = append(s.segments, seg)
		s.counts.Sealed++
	}
	s.log = nil
	s.mu.Unlock()
	return l.remove()
}

// added opens a file that was just written.
func (s *Store) added(path string) (*segment, error) {
	if err := syncDir(s.cfg.Path); err != nil {
		return nil, err
	}
	return openSegment(path)
}

// tend keeps the files within their bounds: they are aged while they take more than half of the
// size, and the oldest are removed where that is not enough.
func (s *Store) tend(now time.Time) {
	for range 8 { // the rest in the next round: intervals must not wait
		oldest, young := s.oldest()
		size := s.size()
		switch {
		case oldest == nil:
			return
		case size > s.cfg.Size || s.cfg.Time > 0 && oldest.ended().Before(now.Add(-s.cfg.Time)):
			s.removeOldest()
		case size > s.cfg.Size/2 && young != nil && s.mayTry():
			err := s.age(young)
			if damaged := (*DamagedError)(nil); errors.As(err, &damaged) {
				continue // it is counted, and not aged any more
			}
			s.try("age a file", err)
		default:
			return
		}
	}
}

// oldest are the oldest file, and the oldest that is not aged yet; nil: there is none.
func (s *Store) oldest() (oldest, young *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, seg := range s.segments {
		if i == 0 {
			oldest = seg
		}
		if !seg.aged && seg.damage() == "" {
			return oldest, seg
		}
	}
	return oldest, nil
}

// size is what all files take.
func (s *Store) size() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range s.segments {
		n += uint64(seg.bytes)
	}
	if s.log != nil {
		n += uint64(s.log.size)
	}
	return n
}

func (s *Store) removeOldest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg := s.segments[0]
	s.segments = append([]*segment(nil), s.segments[1:]...)
	s.dropped = seg.ended()
	s.counts.Removed++
	seg.remove()
}

// replace puts an aged file in the place of the one that it was made of.
func (s *Store) replace(old, aged *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*segment, len(s.segments))
	for i, seg := range s.segments {
		if list[i] = seg; seg == old {
			list[i] = aged
		}
	}
	s.segments = list
	s.counts.Aged++
	old.remove()
}
