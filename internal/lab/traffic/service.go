package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// ServiceConfig is a service that answers each request after a known time.
type ServiceConfig struct {
	Network string         // "tcp" or "udp"
	Listen  netip.AddrPort // port 0: any
	Think   time.Duration  // between the arrival of a request and its answer
}

// Service is a server that answers until it is closed.
type Service struct {
	cfg    ServiceConfig
	addr   netip.AddrPort
	closer io.Closer
	wg     sync.WaitGroup
	think  atomic.Int64 // nanoseconds

	mu       sync.Mutex
	conns    map[net.Conn]bool
	amount   Amount
	thought  Durations
	firstErr error
}

// Serve starts a service on a host; it listens when Serve returns. It ends with
// ctx or with Close.
func Serve(ctx context.Context, host Host, cfg ServiceConfig) (*Service, error) {
	s := &Service{cfg: cfg, conns: map[net.Conn]bool{}}
	s.Think(cfg.Think)
	var run func()
	err := host.Do(func() error {
		switch cfg.Network {
		case "tcp":
			l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(cfg.Listen))
			if err != nil {
				return err
			}
			s.addr, s.closer, run = l.Addr().(*net.TCPAddr).AddrPort(), l, func() { s.acceptAll(l) }
		case "udp":
			c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(cfg.Listen))
			if err != nil {
				return err
			}
			s.addr, s.closer, run = c.LocalAddr().(*net.UDPAddr).AddrPort(), c, func() { s.answerDatagrams(c) }
		default:
			return fmt.Errorf("network %q: choose tcp or udp", cfg.Network)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("serve on %s %s: %w", cfg.Network, cfg.Listen, err)
	}
	s.wg.Go(run)
	context.AfterFunc(ctx, func() { _ = s.Close() })
	return s, nil
}

// Addr is where the service listens.
func (s *Service) Addr() netip.AddrPort { return s.addr }

// Think changes the time between the arrival of a request and its answer.
func (s *Service) Think(d time.Duration) { s.think.Store(int64(d)) }

// Amount is what the service sent and got. TCP segments are in it once their
// connection ended.
func (s *Service) Amount() Amount {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.amount
}

// Thought are the times that passed in the service between a request and its
// answer: Think, and what the machine added.
func (s *Service) Thought() Durations {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(Durations{}, s.thought...)
}

// Close ends the service, with connections that are still open, and returns the
// first error it met. It may be called again.
func (s *Service) Close() error {
	_ = s.closer.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.SetDeadline(time.Now())
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.firstErr
}

func (s *Service) failed(err error) {
	if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.firstErr == nil {
		s.firstErr = err
	}
}

func (s *Service) acceptAll(l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			s.failed(err)
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.wg.Go(func() {
			s.failed(s.answerStream(c))
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
			c.Close()
		})
	}
}

// answerStream answers the requests of one connection, one after the other.
func (s *Service) answerStream(c *net.TCPConn) error {
	for {
		request, err := readMessage(c)
		if errors.Is(err, io.EOF) {
			info, err := finish(c)
			s.mu.Lock()
			s.amount.add(Amount{SentPackets: uint64(info.SegmentsOut), ReceivedPackets: uint64(info.SegmentsIn)})
			s.mu.Unlock()
			return err
		}
		if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		arrived := time.Now()
		time.Sleep(time.Duration(s.think.Load()))
		thought := time.Since(arrived)
		n, err := c.Write(response(request))
		s.note(request, n, thought, Amount{})
		if err != nil {
			return fmt.Errorf("write response: %w", err)
		}
	}
}

func (s *Service) answerDatagrams(c *net.UDPConn) {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			s.failed(err)
			return
		}
		arrived := time.Now()
		request, err := decodeMessage(buf[:n])
		if err != nil || int(request.size) != n {
			s.failed(fmt.Errorf("datagram of %d bytes from %s: %w", n, from, errors.Join(err, errTorn)))
			continue
		}
		s.wg.Go(func() {
			time.Sleep(time.Duration(s.think.Load()))
			thought := time.Since(arrived)
			n, err := c.WriteToUDPAddrPort(response(request), from)
			s.failed(err)
			s.note(request, n, thought, Amount{SentPackets: 1, ReceivedPackets: 1})
		})
	}
}

var errTorn = errors.New("not a whole request")

func (s *Service) note(request message, sent int, thought time.Duration, more Amount) {
	more.SentBytes, more.ReceivedBytes = uint64(sent), uint64(request.size)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.amount.add(more)
	s.thought = append(s.thought, thought)
}

func response(request message) []byte {
	return message{size: max(request.answer, MinMessage), id: request.id}.encode()
}
