package timeline

import (
	"time"

	"github.com/waymark-net/waymark/internal/topology"
)

// lingers is how long a neighbour is shown after the kernel forgot it: entries leave its tables when nothing was sent for
// a while, and come back with the next packet.
const lingers = 10 * time.Minute

// maxRecent bounds what is remembered; a flood of addresses fills the tables of the kernel again and again.
const maxRecent = 1 << 14

// Recent remembers neighbours.
type Recent struct {
	seen map[topology.Neighbour]time.Time
}

// Merge adds those that the kernel forgot a short time ago.
func (r *Recent) Merge(now time.Time, list []topology.Neighbour) (all []topology.Neighbour) {
	if r.seen == nil {
		r.seen = map[topology.Neighbour]time.Time{}
	}
	for _, n := range list {
		r.seen[n] = now
	}
	for n, at := range r.seen {
		if now.Sub(at) > lingers || len(r.seen) > maxRecent && at != now {
			delete(r.seen, n)
			continue
		}
		all = append(all, n)
	}
	return all
}
