package analyze

import (
	"time"

	"github.com/waymark-net/waymark/internal/verdict"
)

// Of clocks of hosts, requests say by how much they are ahead, less the time until the request was read.
const (
	mostClocks  = 12                    // requests that are remembered
	leastClocks = 4                     // of which something follows
	driftSlack  = 10 * time.Millisecond // of a clock, during these
	sameClock   = time.Second           // beyond which a clock was set meanwhile
)

// clockSeen is what a request said.
type clockSeen struct {
	ahead time.Duration
	trip  time.Duration // what the request before it took, both ways, without the analyzer's work; 0: not known
}

// clock is what the requests of a host say of its clock.
type clock struct{ seen []clockSeen }

func (c *clock) note(one clockSeen) {
	if len(c.seen) == mostClocks {
		c.seen = c.seen[1:]
	}
	c.seen = append(c.seen, one)
}

// bounds are by how much the clock is ahead. The time that the fastest request took to come is no more than any took both ways.
func (c *clock) bounds() (b verdict.Clock, known bool) {
	if len(c.seen) < leastClocks {
		return b, false
	}
	least, most, trip := c.seen[0].ahead, c.seen[0].ahead, time.Duration(0)
	for i, one := range c.seen {
		least, most = min(least, one.ahead), max(most, one.ahead)
		if i > 0 && one.trip > 0 && (trip == 0 || one.trip < trip) { // that of the first is of a request before them
			trip = one.trip
		}
	}
	if trip == 0 || most-least > sameClock {
		return b, false
	}
	return verdict.Clock{Least: most - driftSlack, Most: most + trip + driftSlack}, true
}
