package ipfix

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// udpSession sends datagrams from a connected socket, so that the kernel tells
// of ICMP port unreachable: the next call on the socket fails with ECONNREFUSED
// and sends nothing.
type udpSession struct {
	conn    net.Conn
	timeout time.Duration // for a refusal to come back

	latest  int // flows in the latest message: what a refusal is about
	refused int // flows known to have been refused

	burst int // messages since
	began time.Time
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
	_, err := s.conn.Write(message)
	if err != nil {
		s.refuse(err)
		return err
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
	s.conn.SetReadDeadline(time.Now().Add(s.timeout))
	var answer [1]byte
	_, err := s.conn.Read(answer[:])
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	s.refuse(err)
	return err
}

func (s *udpSession) refuse(err error) {
	if errors.Is(err, unix.ECONNREFUSED) {
		s.refused += s.latest
		s.latest = 0
	}
}

func (s *udpSession) interrupt() { s.conn.SetDeadline(time.Unix(1, 0)) }

func (s *udpSession) lost() (int, string) {
	n := s.refused
	s.refused = 0
	return n, "refused"
}

func (s *udpSession) close() error { return s.conn.Close() }
