package ioam

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	wire "github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// Loopback limits the copies that the node sends back of packets that ask for them (RFC 9322).
type Loopback struct {
	Every uint32 // one for so many traces that the node fills; 0: none
	Rate  uint32 // copies per second and CPU
}

// copyHops is the hop limit of copies. They begin with the highest, so that hop limits in a trace fall on the way there,
// and rise once, where it turned back.
const copyHops = 255

// looper sends traces back, from the namespaces of interfaces.
type looper struct {
	mu      sync.Mutex
	sockets sockets
	sent    uint64
	unsent  uint64 // copies that the node could not send: no socket, no route
}

func (l *looper) join(t *datapath.Target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sockets.join(t, "send copies of packets back", openLooper)
}

func (l *looper) leave(netns uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sockets.leave(netns)
}

func (l *looper) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sockets.close()
}

// openLooper opens a socket that sends whole packets and receives none. Programs know its priority: what it sends never
// gets options.
func openLooper() (int, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, int(abiMarkOwnMARK_OWN_PRIORITY)); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// take sends a copy that the programs made.
func (l *looper) take(raw []byte) {
	c := (*abiIoamCopy)(unsafe.Pointer(&raw[0]))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.send(c); err != nil {
		l.unsent++
		return
	}
	l.sent++
}

func (l *looper) send(c *abiIoamCopy) error {
	fd, ok := l.sockets.fds[flow.Iface(c.Iface).Netns()]
	if !ok || fd < 0 {
		return errors.New("no socket")
	}
	to := unix.SockaddrInet6{Addr: c.Source}
	from, err := sourceFor(fd, &to)
	if err != nil {
		return err
	}
	packet, err := copyOf(from, netip.AddrFrom16(c.Source), c.Option[:min(int(c.Len), len(c.Option))])
	if err != nil {
		return err
	}
	return unix.Sendto(fd, packet, 0, &to)
}

// sourceFor is the address that this host sends from to another (RFC 6724).
func sourceFor(fd int, to *unix.SockaddrInet6) (from netip.Addr, err error) {
	// The kernel keeps the address that it chose before, unless the socket is disconnected.
	none := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none)); errno != 0 {
		return from, errno
	}
	if err := unix.Connect(fd, to); err != nil {
		return from, err
	}
	name, err := unix.Getsockname(fd)
	if own, ok := name.(*unix.SockaddrInet6); ok {
		from = netip.AddrFrom16(own.Addr)
	}
	return from, err
}

// copyOf is a packet with a trace that asks for nothing more, and without payload.
func copyOf(from, to netip.Addr, option []byte) ([]byte, error) {
	body, err := wire.DecodeOption(option)
	trace, ok := body.(*wire.Trace)
	if !ok {
		return nil, fmt.Errorf("a copy of no trace: %w", err)
	}
	trace.Flags &^= wire.Loopback
	header, err := wire.AppendHeader(nil, unix.IPPROTO_NONE, trace)
	if err != nil {
		return nil, err
	}
	packet := []byte{6 << 4, 0, 0, 0}
	packet = binary.BigEndian.AppendUint16(packet, uint16(len(header)))
	packet = append(packet, ipv6.HopByHop, copyHops)
	packet = append(packet, from.AsSlice()...)
	packet = append(packet, to.AsSlice()...)
	return append(packet, header...), nil
}

// counts are copies that were sent, and not; and why none can be sent at all.
func (l *looper) counts() (sent, unsent uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent, l.unsent, l.sockets.err
}

// Loops reports whether the insertion has a trace that asks for copies.
func (in *Insertion) Loops() bool {
	for _, body := range in.Options {
		if t, ok := body.(*wire.Trace); ok && t.Flags&wire.Loopback != 0 {
			return true
		}
	}
	return false
}

// reached is how many hops a packet had made when a node sent it back: hop limits fall until there.
func reached(hops []wire.Hop) int {
	for i := 1; i < len(hops); i++ {
		if hops[i].HopLimit >= hops[i-1].HopLimit {
			return i
		}
	}
	return len(hops)
}
