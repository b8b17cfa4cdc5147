package ioam

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// leastMTU is what each IPv6 link takes (RFC 8200 section 5).
	leastMTU = 1280
	// lengthStep is how exactly the longest packet is searched for that a tunnel takes.
	lengthStep = 8
	// lengthMisses are the requests of a length, without an answer, after which it counts as too long.
	lengthMisses = 2
	// lengthForgotten: a path that took too little is asked again, as PATH_LIFETIME in bpf/mark/path.h.
	lengthForgotten = 10 * time.Minute
)

// lengths searches for the longest packet that arrives at the end of a tunnel, with requests of different lengths: a narrow link
// need not report what it drops. Times are monotonic, in ns.
type lengths struct {
	known   int    // the longest that was answered; 0: none above leastMTU
	knownAt uint64 // when that request was sent
	lost    int    // the shortest that was not, while others were; 0: none
	lostAt  uint64
	misses  [2]int // in a row: of longer ones than known, and of known
	asked   int    // length of the request that is on its way; 0: none
	askedAt uint64
	again   bool // known is next, which would grow old while longer ones are lost
}

// next is how long the next request is, behind the outer header, at most the MTU of the route; 0: there is none to send.
func (l *lengths) next(mtu int, now uint64) int {
	if l.lost > 0 && now-l.lostAt > uint64(lengthForgotten) {
		l.lost = 0
	}
	if l.known > mtu {
		l.known = 0
	}
	low, length := max(l.known, leastMTU), mtu
	switch {
	case l.again:
		length = l.known
	case l.lost > mtu || l.lost == 0:
	case l.lost-low > lengthStep:
		length = (low + l.lost) / 2
	default:
		length = low
	}
	l.again, l.asked, l.askedAt = false, 0, now
	if length > leastMTU {
		l.asked = length
	}
	return l.asked
}

// answered: a request of that time has arrived.
func (l *lengths) answered(length int, sent uint64) {
	if length < l.known && !l.old(sent) {
		return
	}
	if length != l.known {
		l.misses[0] = 0
	}
	l.known, l.knownAt, l.misses[1] = length, sent, 0
	if length >= l.lost {
		l.lost = 0
	}
	if l.askedAt == sent {
		l.asked = 0
	}
}

// missed: the request on its way has had no answer, although a short one has.
func (l *lengths) missed(now uint64) {
	length, kind := l.asked, 0
	if l.asked = 0; length <= l.known {
		kind = 1
	}
	l.again = length > l.known && l.known > 0
	if l.misses[kind]++; l.misses[kind] < lengthMisses {
		return
	}
	l.misses, l.lost, l.lostAt = [2]int{}, length, now
	if length <= l.known {
		l.known = 0
	}
}

// old: nothing has shown lately that what is known still holds.
func (l *lengths) old(now uint64) bool { return now-l.knownAt >= uint64(echoLifetime) }

// longest is what programs may send, 0 if no more than leastMTU.
func (l *lengths) longest(now uint64) uint16 {
	if l.old(now) {
		return 0
	}
	return uint16(min(l.known, 0xffff))
}

// openRoute opens a socket that asks for the MTU of routes, and sends nothing.
func openRoute() (int, error) {
	return unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
}

// routeMTU is that of the route to an address; 0: there is none.
func routeMTU(fd int, to [16]byte) int {
	if unix.Connect(fd, &unix.SockaddrInet6{Addr: to, Port: 9}) != nil {
		return 0
	}
	mtu, err := unix.GetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU)
	if err != nil {
		return 0
	}
	return mtu
}
