package analyze

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/verdict"
)

// Of clocks of hosts, requests say by how much they are ahead, less the time until the request was read.
const (
	mostClocks  = 12                    // requests that are remembered
	leastClocks = 4                     // of which something follows
	readSlack   = 5 * time.Millisecond  // at most, in the fastest of them: scheduling at both ends
	driftSlack  = 10 * time.Millisecond // of a clock, during these
	sameClock   = time.Second           // beyond which a clock was set meanwhile
)

// clockSeen is what a request said.
type clockSeen struct {
	ahead time.Duration
	trip  time.Duration // shortest round trip of the connection; 0: not known
}

// clock is what the requests of a host say of its clock.
type clock struct{ seen []clockSeen }

func (c *clock) note(one clockSeen) {
	if len(c.seen) == mostClocks {
		c.seen = c.seen[1:]
	}
	c.seen = append(c.seen, one)
}

// bounds are by how much the clock is ahead. The time that the fastest request took is no more than a round trip.
func (c *clock) bounds() (b verdict.Clock, known bool) {
	if len(c.seen) < leastClocks {
		return b, false
	}
	least, most, trip := c.seen[0].ahead, c.seen[0].ahead, c.seen[0].trip
	for _, one := range c.seen {
		least, most, trip = min(least, one.ahead), max(most, one.ahead), max(trip, one.trip)
		if one.trip == 0 {
			return b, false
		}
	}
	if most-least > sameClock {
		return b, false
	}
	return verdict.Clock{Least: most - driftSlack, Most: most + trip + readSlack + driftSlack}, true
}

// connection is the key of the connection of a request in its context.
type connection struct{}

func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connection{}, c)
}

// tripOf is the shortest round trip of the connection of a request, as the kernel measured it; 0: not known.
func tripOf(r *http.Request) (trip time.Duration) {
	over, ok := r.Context().Value(connection{}).(*tls.Conn)
	if !ok {
		return 0
	}
	below, ok := over.NetConn().(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := below.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // of a connection that is gone, nothing is known
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			trip = time.Duration(info.Min_rtt) * time.Microsecond
		}
	})
	return trip
}
