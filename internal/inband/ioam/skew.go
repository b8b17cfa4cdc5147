package ioam

import (
	"math"
	"time"
)

// Clocks of two nodes agree as far as their differences can be times of packets. Queues make
// single packets late, so the least time of many tells more than any other.
const (
	// maxLink is a least time that no link takes: half a round trip by satellite is 0.3 s.
	maxLink = plausible
	// maxWhole is likewise of a whole path.
	maxWhole = 2 * plausible
	// driftWindows is how many windows of time show that clocks run at different speeds, and
	// driftPackets how many packets a window needs.
	driftWindows = 5
	driftPackets = 10
	// minDrift is the least drift that is noticed. Crystals are off by 10 to 100 ppm, and clocks that are corrected run off by
	// 500 ppm at most: what grows faster than maxDrift is not a clock, but a queue.
	minDrift = 3e-6
	maxDrift = 2e-3
)

// disagree reports whether times cannot be those from one node to another: a packet does not
// arrive before it was sent, and the fastest one arrives soon.
func disagree(t *Times, most int64) bool { return t.Count > 0 && (t.Min < 0 || t.Min > most) }

// minima are the least times of the latest windows.
type minima struct {
	n    int
	list [driftWindows]struct {
		at    time.Time // end of the window
		least int64
	}
}

// add takes a window, unless it has few packets.
func (m *minima) add(at time.Time, t *Times) {
	if t.Count < driftPackets {
		return
	}
	if m.n == driftWindows {
		copy(m.list[:], m.list[1:])
		m.n--
	}
	m.list[m.n].at, m.list[m.n].least = at, t.Min
	m.n++
}

// drift is by how much one clock runs faster than the other, as a share; 0: they run at the same
// speed, as far as is known. Queues do not make the least time grow evenly for minutes.
func (m *minima) drift() float64 {
	if m.n < driftWindows {
		return 0
	}
	least, most, sum := math.Inf(1), 0.0, 0.0
	for i := 1; i < m.n; i++ {
		a, b := &m.list[i-1], &m.list[i]
		slope := float64(b.least-a.least) / float64(b.at.Sub(a.at))
		if slope*sum < 0 {
			return 0
		}
		sum += slope
		least, most = min(least, math.Abs(slope)), max(most, math.Abs(slope))
	}
	if least < minDrift || most > min(2*least, maxDrift) {
		return 0
	}
	return sum / float64(m.n-1)
}

// judge finds links whose ends have clocks that do not agree, in both directions between two nodes.
func (p *Path) judge() {
	for i := range len(p.Hops) - 1 {
		h := &p.Hops[i]
		if drift := h.Link.minima.drift(); drift != 0 {
			h.Drift = drift
		}
		h.Relative = h.Relative || disagree(&h.Link.All, maxLink) || h.Drift != 0
	}
	p.relative = p.relative || disagree(&p.Whole.All, maxWhole) || p.Whole.minima.drift() != 0
}

// Relative reports whether the time of the whole path is no delay.
func (p *Path) Relative() bool {
	for i := range p.Hops {
		if p.Hops[i].Relative {
			return true
		}
	}
	return p.relative
}
