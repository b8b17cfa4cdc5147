package device

import (
	"time"

	"github.com/waymark-net/waymark/internal/analyze/device/decode"
)

// sequence follows the numbers of the datagrams of a sender. What is missing is lost only after a while: datagrams overtake each other.
// A device that restarts begins again, which is no loss; its own clock tells.
type sequence struct {
	begun    bool
	next     uint32
	exported time.Time // latest
	boot     time.Time // of the device; zero: not known
	gaps     []gap     // oldest first
	recent   [recentMost]print
	at       int
}

// gap are numbers that have not come, from first up to before end.
type gap struct {
	first, end uint32
	since      time.Time
}

// print recognizes a datagram that comes again.
type print struct {
	sum    uint32
	length int
	has    bool
}

const (
	recentMost = 64
	mostGaps   = 32
	gapTime    = 5 * time.Second // after which what has not come is lost
	bootMargin = 10 * time.Second
	// With nothing but numbers, a jump so far to one so low is a restart.
	farJump, lowNumber = 1 << 26, 1 << 16
)

// repeated reports whether this very datagram came lately.
func (s *sequence) repeated(sum uint32, length int) bool {
	p := print{sum, length, true}
	for i := range s.recent {
		if s.recent[i] == p {
			return true
		}
	}
	s.recent[s.at] = p
	s.at = (s.at + 1) % recentMost
	return false
}

// restarted reports whether the device began again since the datagram before. The counter of its uptime wraps after 49 days, which
// would look the same: numbers go on then.
func (s *sequence) restarted(h *decode.Header, now time.Time) bool {
	if !h.HasUptime {
		ahead := h.Sequence - s.next
		return int32(ahead) > farJump && h.Sequence < lowNumber
	}
	boot := bootOf(h, now)
	return h.Sequence != s.next && boot.Sub(s.boot) > bootMargin
}

// bootOf is when the device began, by its own clock, or where it does not send the time, by ours.
func bootOf(h *decode.Header, now time.Time) time.Time {
	if h.Exported.IsZero() {
		return now.Add(-h.Uptime)
	}
	return h.Exported.Add(-h.Uptime)
}

// take notes a datagram with so many units; known is false if their number is not known. It returns how many are lost.
func (s *sequence) take(h *decode.Header, units uint32, known bool, now time.Time) (lost uint64) {
	lost = s.settle(now)
	switch {
	case !s.begun:
		s.begun = true
	case s.restarted(h, now):
		lost += s.end()
	case h.Sequence == s.next:
	case int32(h.Sequence-s.next) > 0:
		lost += s.open(gap{s.next, h.Sequence, now})
	case s.fill(h.Sequence, units):
		return lost // it was late
	case !h.Exported.After(s.exported) && !h.Exported.IsZero():
		return lost // older than what came before, and not missing: a number was given twice
	default: // numbers go back, and time goes on
		lost += s.end()
	}
	s.next = h.Sequence + units
	if !known {
		s.begun = false // the next datagram says where numbers go on
	}
	s.exported = h.Exported
	if h.HasUptime {
		s.boot = bootOf(h, now)
	}
	return lost
}

func (s *sequence) open(g gap) (lost uint64) {
	if len(s.gaps) == mostGaps {
		lost = uint64(s.gaps[0].end - s.gaps[0].first)
		s.gaps = s.gaps[1:]
	}
	s.gaps = append(s.gaps, g)
	return lost
}

// fill takes numbers out of a gap.
func (s *sequence) fill(first, units uint32) bool {
	for i := range s.gaps {
		g := &s.gaps[i]
		if first-g.first >= g.end-g.first {
			continue
		}
		rest := gap{first + min(units, g.end-first), g.end, g.since}
		g.end = first
		if rest.first != rest.end && len(s.gaps) < 2*mostGaps {
			s.gaps = append(s.gaps, rest)
		}
		return true
	}
	return false
}

// settle gives up gaps that are old.
func (s *sequence) settle(now time.Time) (lost uint64) {
	kept := s.gaps[:0]
	for _, g := range s.gaps {
		if now.Sub(g.since) < gapTime {
			kept = append(kept, g)
			continue
		}
		lost += uint64(g.end - g.first)
	}
	s.gaps = kept
	return lost
}

// end gives up all gaps.
func (s *sequence) end() (lost uint64) {
	for _, g := range s.gaps {
		lost += uint64(g.end - g.first)
	}
	s.gaps = nil
	return lost
}
