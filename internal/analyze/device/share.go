package device

import "sync/atomic"

// Bounds of what is kept of one address: whoever forges it can send as many observation domains.
const (
	mostOfAddress    = 4 * mostFlows
	sessionsInDomain = 16
	sessionsInAll    = 128
)

// share is what the exporters of one address take together.
type share struct {
	most            int64 // flows, and as many again of exporters that had few
	flows, sessions atomic.Int64
}

// full reports whether an exporter that has so many flows gets no more: all together have enough, and it has its part.
func (s *share) full(live int) bool {
	return s.flows.Load() >= s.most && int64(live) >= s.most/mostDomains
}

// mostSessions is how many sessions an exporter may have: two at least, as after a restart of the device.
func (s *share) mostSessions() int {
	if s.sessions.Load() >= sessionsInAll {
		return 2
	}
	return sessionsInDomain
}
