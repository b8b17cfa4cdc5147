package ipfix

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/export/ownsocket"
)

// udpSession sends datagrams from a connected socket, so that the kernel reports
// ICMP errors: the next call on the socket fails, with ECONNREFUSED where nobody
// listens, and sends nothing. Go's poller doesn't know of the socket: it would
// wake up for each datagram that is out.
type udpSession struct {
	fd          int
	timeout     time.Duration // for a refusal to come back
	interrupted atomic.Bool

	sent   [maxSent]sentMessage // the latest messages
	next   int                  // place of the next one
	reason string               // of the error, for what is lost

	burst int // messages since
	began time.Time
}

// waitStep is how long to wait before the socket is asked again.
const waitStep = 2 * time.Millisecond

// sentMessage is a message by its header.
type sentMessage struct {
	id    uint64 // 0: none
	flows int
}

// maxSent is for how many messages errors may be under way.
const maxSent = 256

// messageID distinguishes messages of a session: by sequence number and length,
// since messages without data records don't advance the sequence.
func messageID(message []byte) uint64 {
	return uint64(be.Uint16(message[2:]))<<32 | uint64(be.Uint32(message[8:]))
}

// dialUDP connects a socket to an address.
func dialUDP(to netip.AddrPort, timeout time.Duration) (*udpSession, error) {
	zone, err := zoneOf(to.Addr().Zone())
	if err != nil {
		return nil, err
	}
	// Errors such as "host unreachable" are reported only on request.
	family, level, option := unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	peer := unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16(), ZoneId: zone})
	if addr := to.Addr().Unmap(); addr.Is4() {
		family, level, option = unix.AF_INET, unix.IPPROTO_IP, unix.IP_RECVERR
		peer = &unix.SockaddrInet4{Port: int(to.Port()), Addr: addr.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	ownsocket.Set(fd)
	err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, option, 1))
	if err == nil {
		err = os.NewSyscallError("connect", unix.Connect(fd, peer))
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
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
// bytes.
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
			return s.refuse(err)
		}
		time.Sleep(waitStep) // the socket holds what the device has not taken yet
	}
	s.sent[s.next] = sentMessage{messageID(message), flows}
	s.next = (s.next + 1) % maxSent
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
		reported, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && reported != 0 {
			err = unix.Errno(reported)
		}
		if err != nil {
			return s.refuse(err)
		}
		if s.interrupted.Load() || time.Now().After(deadline) {
			return nil
		}
	}
}

func (s *udpSession) refuse(err error) error {
	s.reason = "unreachable"
	if errors.Is(err, unix.ECONNREFUSED) {
		s.reason = "refused"
	}
	return os.NewSyscallError("write", err)
}

func (s *udpSession) interrupt() { s.interrupted.Store(true) }

// lost counts the flows of messages that came back in ICMP errors.
func (s *udpSession) lost() (flows int, reason string) {
	const header = 16
	for b := make([]byte, header); ; {
		n, _, _, _, err := unix.Recvmsg(s.fd, b, nil, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			return flows, s.reason
		}
		if n < header {
			continue // the error holds too little of the message
		}
		for i := range s.sent {
			if m := &s.sent[i]; m.id != 0 && m.id == messageID(b) {
				flows += m.flows
				*m = sentMessage{}
			}
		}
	}
}

func (s *udpSession) close() error { return os.NewSyscallError("close", unix.Close(s.fd)) }
