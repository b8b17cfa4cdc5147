package disk

import (
	"encoding/binary"

	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/store"
)

// An interval that came from elsewhere has its identity behind its bytes in the log: both are written at once, so that
// the store knows the interval if and only if it has it. Before a log leaves, the identities in it are in a file of
// their own.

// Identity says which interval it is of those that a sender made.
type Identity struct {
	Boot     uint64 // of the sender: each of its runs has another
	Sequence uint64 // from 1, without gaps but for what the sender lost
	Sum      uint32 // of its bytes
}

// Kept is what came of an interval.
type Kept uint8

// What may come of an interval.
const (
	KeptNew   Kept = iota // it is kept
	KeptKnown             // it was kept before
	KeptOther             // another interval has its identity: it is not kept
)

// trailerMagic ends the bytes of an interval with an identity. Those of others end with zeros.
const trailerMagic = "WMID"

const trailerBytes = 8 + 8 + 4 + len(trailerMagic)

func (id *Identity) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, id.Boot)
	b = binary.LittleEndian.AppendUint64(b, id.Sequence)
	return binary.LittleEndian.AppendUint32(b, id.Sum)
}

func readIdentity(b []byte) Identity {
	return Identity{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:])}
}

// trailer is the identity of a logged interval.
func trailer(b []byte) (id Identity, ok bool) {
	if len(b) < trailerBytes || string(b[len(b)-len(trailerMagic):]) != trailerMagic {
		return id, false
	}
	return readIdentity(b[len(b)-trailerBytes:]), true
}

// Keep writes an interval that came from elsewhere, unless it is kept already. Before Sync, a host that loses its power
// may lose it. Keep, Sync and Work are not called at the same time, nor while Run runs.
func (s *Store) Keep(e *store.Ended, id Identity) (Kept, error) {
	if kept := s.ids.find(id); kept != KeptNew {
		return kept, nil
	}
	own := e.Numbered(s.last + 1)
	if err := s.put(&own, &id); err != nil {
		s.count(func(c *obs.HistoryCounts) { c.Errors++ })
		return KeptNew, err
	}
	return KeptNew, s.ids.add(id)
}

// Sync returns once what was kept would survive a loss of power.
func (s *Store) Sync() error {
	if s.log == nil {
		return nil // what was in it is in a file, which is written whole
	}
	return s.log.sync(s.deps.Clock(), 0)
}

// Heads are those of the intervals that are there as they came, in that order; those of which only sums are left are not.
func (s *Store) Heads() (list []store.Head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range s.segments {
		if !seg.aged {
			list = append(list, seg.heads...)
		}
	}
	if s.log != nil {
		list = append(list, s.log.heads...)
	}
	return list
}

// Received is what was kept of a sender's run: the last interval; 0: nothing.
func (s *Store) Received(boot uint64) (last uint64) { return s.ids.last(boot) }
