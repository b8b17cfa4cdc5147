package ipfix

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// udpSession sends datagrams from a connected socket, so that the kernel tells
// of ICMP port unreachable: the next call on the socket fails with ECONNREFUSED
// and sends nothing. Go's poller doesn't know of the socket: it would wake up for
// each datagram that is out.
type udpSession struct {
	fd          int
	timeout     time.Duration // for a refusal to come back
	interrupted atomic.Bool

	latest  int // flows in the latest message: what a refusal is about
	refused int // flows known to have been refused

	burst int // messages since
	began time.Time
}

// waitStep is how long to wait before the socket is asked again.
const waitStep = 2 * time.Millisecond

// dialUDP finds the collector's address, and connects.
func dialUDP(ctx context.Context, address string, timeout time.Duration) (*udpSession, error) {
	var d net.Dialer
	found, err := d.DialContext(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	to := found.RemoteAddr().(*net.UDPAddr).AddrPort()
	zone, err := zoneOf(to.Addr().Zone())
	if err != nil {
		return nil, err
	}
	family, peer := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16(), ZoneId: zone})
	if addr := to.Addr().Unmap(); addr.Is4() {
		family, peer = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: addr.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, peer); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	return &udpSession{fd: fd, timeout: timeout}, nil
}

// zoneOf is the index of the interface that a link-local address belongs to.
func zoneOf(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	iface, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("zone %s: %w", zone, err)
	}
	return uint32(iface.Index), nil
}

// A drain can bring a million flows at once. UDP has no flow control, so that
// messages are spread: what comes in a millisecond has to fit the receive buffer
// that Linux gives a collector that asks for none, about 90 messages of 1400
// octets.
const (
	burstMessages = 32
	burstTime     = time.Millisecond
)

func (s *udpSession) send(_ context.Context, message []byte, flows int) error {
	for {
		if s.interrupted.Load() {
			return os.ErrDeadlineExceeded
		}
		_, err := unix.Write(s.fd, message)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EAGAIN) {
			s.refuse(err)
			return os.NewSyscallError("write", err)
		}
		time.Sleep(waitStep) // the socket holds what the device has not taken yet
	}
	s.latest = flows
	s.pace()
	return nil
}

func (s *udpSession) pace() {
	if s.burst++; s.burst < burstMessages {
		return
	}
	time.Sleep(burstTime - time.Since(s.began)) // not at all when that has passed
	s.burst, s.began = 0, time.Now()
}

func (s *udpSession) confirm() error {
	for deadline := time.Now().Add(s.timeout); ; time.Sleep(waitStep) {
		told, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && told != 0 {
			err = unix.Errno(told)
		}
		if err != nil {
			s.refuse(err)
			return os.NewSyscallError("write", err)
		}
		if s.interrupted.Load() || time.Now().After(deadline) {
			return nil
		}
	}
}

func (s *udpSession) refuse(err error) {
	if errors.Is(err, unix.ECONNREFUSED) {
		s.refused += s.latest
		s.latest = 0
	}
}

func (s *udpSession) interrupt() { s.interrupted.Store(true) }

func (s *udpSession) lost() (int, string) {
	n := s.refused
	s.refused = 0
	return n, "refused"
}

func (s *udpSession) close() error { return os.NewSyscallError("close", unix.Close(s.fd)) }
