package ipfix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// streamSession sends messages over TCP or TLS. It keeps account of what the
// collector's host has acknowledged, so that a broken connection tells exactly
// how many records went with it.
type streamSession struct {
	conn    net.Conn // the connection, or TLS over it
	tcp     *countedConn
	timeout time.Duration // of a message

	transit []inTransit // messages sent and not yet known to be acknowledged

	ended chan struct{} // closed when the collector ends the connection
	cause error         // why; read after ended
}

// inTransit is a message by the bytes sent on the connection including it.
type inTransit struct {
	end   uint64
	flows int
}

// countedConn counts bytes.
type countedConn struct {
	*net.TCPConn
	written  uint64
	received atomic.Uint64
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.received.Add(uint64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.written += uint64(n)
	return n, err
}

// watch starts reading: a collector sends nothing, so that the end of the
// stream is all there is to read. Without it, a message would be lost to every
// connection that a collector has closed.
func (s *streamSession) watch() {
	s.ended = make(chan struct{})
	go func() {
		_, err := io.Copy(io.Discard, s.conn)
		if err == nil {
			err = io.EOF
		}
		s.cause = err
		close(s.ended)
	}()
}

func (s *streamSession) send(ctx context.Context, message []byte, flows int) error {
	select {
	case <-s.ended:
		return fmt.Errorf("the collector ended the connection: %w", s.cause)
	default:
	}
	s.conn.SetWriteDeadline(time.Now().Add(s.timeout))
	if err := ctx.Err(); err != nil { // interrupt may have come before
		return err
	}
	if _, err := s.conn.Write(message); err != nil {
		return err
	}
	s.transit = append(s.transit, inTransit{s.tcp.written, flows})
	if len(s.transit) >= maxTransit {
		s.acknowledge()
	}
	return nil
}

// maxTransit is when to look which messages have arrived; socket buffers seldom
// hold more.
const maxTransit = 256

// acknowledge forgets messages that the collector's host has acknowledged.
func (s *streamSession) acknowledge() {
	pending := s.tcp.written
	if raw, err := s.tcp.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			if n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
				pending = uint64(n)
			}
		})
	}
	arrived := s.tcp.written - min(pending, s.tcp.written)
	n := 0
	for n < len(s.transit) && s.transit[n].end <= arrived {
		n++
	}
	s.transit = append(s.transit[:0], s.transit[n:]...)
}

func (s *streamSession) confirm() error { return nil }

func (s *streamSession) interrupt() { s.tcp.SetWriteDeadline(time.Unix(1, 0)) }

// lost takes back what the kernel still holds: the connection is reset, so that
// what is counted as lost does not arrive after all.
func (s *streamSession) lost() (flows int, reason string) {
	s.acknowledge()
	for _, m := range s.transit {
		flows += m.flows
	}
	s.transit = nil
	s.tcp.SetLinger(0)
	return flows, "unacknowledged"
}

func (s *streamSession) close() error {
	err := s.conn.Close()
	<-s.ended
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
