package disk

import (
	"time"

	"github.com/waymark-net/waymark/internal/obs"
)

// Status reports how the history does.
func (s *Store) Status() obs.History {
	bytes := s.size()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countOverrun()
	st := obs.History{Path: s.cfg.Path, Bytes: bytes, Size: s.cfg.Size, Files: len(s.segments), Counts: s.counts, Failing: s.failing}
	for _, seg := range s.segments {
		st.Records += uint64(seg.rows)
		if seg.aged {
			st.Aged++
		} else if st.Full.IsZero() {
			st.Full = seg.began()
		}
	}
	switch {
	case len(s.segments) > 0:
		st.Oldest = s.segments[0].began()
	case s.log != nil && len(s.log.heads) > 0:
		st.Oldest = s.log.heads[0].From
	}
	if s.log != nil {
		st.Records += uint64(s.log.rows)
		if st.Full.IsZero() && len(s.log.heads) > 0 {
			st.Full = s.log.heads[0].From
		}
	}
	st.Reach = s.reach(&st).Seconds()
	return st
}

// reach is how far back the history will reach.
func (s *Store) reach(st *obs.History) time.Duration {
	reach := s.reachOfSize(st)
	if s.cfg.Time > 0 {
		reach = min(reach, s.cfg.Time)
	}
	return reach
}

// reachOfSize is reach without a bound of time. Once files leave, it is how far it reaches; before, half of the size holds
// complete records and half aged ones.
func (s *Store) reachOfSize(st *obs.History) time.Duration {
	had := s.lastTo.Sub(st.Oldest)
	if st.Oldest.IsZero() || had <= 0 {
		return 0
	}
	if s.counts.Removed > 0 {
		return had
	}
	var sealed int64
	var lasted time.Duration
	for _, seg := range s.segments {
		if !seg.aged {
			sealed += seg.bytes
			lasted += seg.ended().Sub(seg.began())
		}
	}
	if sealed == 0 {
		return 0
	}
	perSecond := float64(sealed) / lasted.Seconds()
	return time.Duration(float64(s.cfg.Size/2) / perSecond * (1 + keptShare/2) * float64(time.Second))
}

// count changes the counts.
func (s *Store) count(change func(*obs.HistoryCounts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.counts)
}

// damaged counts a file that is not what was written, once.
func (s *Store) damaged(seg *segment, err error) {
	seg.mu.Lock()
	known := seg.damaged != ""
	seg.damaged = err.Error()
	seg.mu.Unlock()
	if !known {
		s.count(func(c *obs.HistoryCounts) { c.Damaged++ })
		s.deps.Log.Error("history: a file cannot be read, its records are lost", "error", err)
	}
}

// damage says what is wrong with the file; empty: nothing that is known.
func (s *segment) damage() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damaged
}
