package store

import (
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
)

// wirings are those of the intervals at hand: interfaces come and go.
type wirings []*flow.Wiring

func (ws *wirings) add(w *flow.Wiring) {
	if w != nil && !slices.Contains(*ws, w) {
		*ws = append(*ws, w)
	}
}

// pass reports whether a packet that was seen at one place is seen at the other
// next, without a step through the IP stack.
func (ws wirings) pass(from, to *place) bool {
	return slices.ContainsFunc(ws, func(w *flow.Wiring) bool {
		switch {
		case from.egress && to.egress: // down to what the interface lies on
			return slices.Contains(w.Uppers[to.port], from.port)
		case !from.egress && !to.egress:
			return slices.Contains(w.Uppers[from.port], to.port)
		case from.egress:
			peer, ok := w.Peers[from.port]
			return ok && peer == to.port
		}
		return false
	})
}

// SetWiring tells the store how interfaces hang together in the interval that
// ends next, and from then on.
func (s *Store) SetWiring(w *flow.Wiring) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wiring = w
}
