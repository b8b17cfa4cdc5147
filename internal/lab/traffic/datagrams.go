package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// DatagramConfig is a stream of UDP datagrams one way.
type DatagramConfig struct {
	To       netip.AddrPort // where the receiver listens; port 0: any
	Count    int            // datagrams in all
	Size     int            // payload bytes, at least MinDatagram; above the MTU they fragment
	Flows    int            // sockets that send in turn, each with a port of its own; 0: 1
	Interval time.Duration  // between two datagrams; 0: as fast as the receiver keeps up
	// Idle is how long the receiver waits for more after the last; 0: 1 s. Only
	// streams that lose something take that long.
	Idle time.Duration

	HopByHop []byte // Hop-by-Hop Options header of all packets; IPv6 only
}

// MinDatagram holds the number and the time of a datagram.
const MinDatagram = 16

// window is how many datagrams may be on the way when there is no interval: far
// fewer than a socket holds. Those that are lost come on top.
const window = 64

// DatagramResult is what was sent and what came.
type DatagramResult struct {
	Amount
	Distinct   uint64    // of those received
	Duplicates uint64    // received again
	Reordered  uint64    // received after one of its flow that was sent later
	Delays     Durations // one way of the distinct ones, until the kernel had them
	Addr       netip.AddrPort
	From       []netip.AddrPort // of each flow
}

// Datagrams sends a stream from one host to another and returns when all of it
// came, or nothing more.
func Datagrams(ctx context.Context, from, to Host, cfg DatagramConfig) (DatagramResult, error) {
	var r DatagramResult
	if cfg.Size < MinDatagram || cfg.Size > 65507 {
		return r, fmt.Errorf("datagrams of %d bytes: choose %d to 65507", cfg.Size, MinDatagram)
	}
	cfg.Flows = max(cfg.Flows, 1)
	if cfg.Idle == 0 {
		cfg.Idle = time.Second
	}
	receiver, err := newReceiver(to, cfg)
	if err != nil {
		return r, fmt.Errorf("datagrams: listen on %s: %w", cfg.To, err)
	}
	defer receiver.conn.Close()
	r.Addr = receiver.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	senders, err := dialFlows(ctx, from, r.Addr, cfg)
	if err != nil {
		return r, fmt.Errorf("datagrams to %s: %w", r.Addr, err)
	}
	for _, s := range senders {
		defer s.Close()
		r.From = append(r.From, s.LocalAddr().(*net.UDPAddr).AddrPort())
	}

	received := make(chan error, 1)
	go func() { received <- receiver.run() }()
	start := time.Now()
	buf := make([]byte, cfg.Size)
	lost := 0
	sendErr := func() error {
		for n := range cfg.Count {
			if err := pace(start, cfg.Interval, n, ctx.Done()); err != nil {
				return err
			}
			if cfg.Interval == 0 {
				if missing := receiver.waitFor(n - window - lost); missing > 0 {
					lost += missing + window // what is still on its way is lost too
				}
			}
			binary.BigEndian.PutUint64(buf, uint64(n))
			binary.BigEndian.PutUint64(buf[8:], uint64(time.Now().UnixNano()))
			if _, err := senders[n%cfg.Flows].Write(buf); err != nil {
				return fmt.Errorf("send datagram %d: %w", n, err)
			}
			r.SentPackets++
			r.SentBytes += uint64(cfg.Size)
		}
		return nil
	}()
	// From now on silence is the end.
	if err := receiver.conn.SetReadDeadline(time.Now().Add(cfg.Idle)); err != nil {
		return r, err
	}
	receiver.sent.Store(true)
	err = errors.Join(sendErr, <-received)
	r.ReceivedPackets, r.ReceivedBytes = receiver.packets, receiver.bytes
	r.Distinct, r.Duplicates, r.Reordered = receiver.distinct, receiver.duplicates, receiver.reordered
	r.Delays = receiver.delays
	if err != nil {
		return r, fmt.Errorf("datagrams to %s: %w", r.Addr, err)
	}
	return r, nil
}

func dialFlows(ctx context.Context, from Host, to netip.AddrPort, cfg DatagramConfig) ([]*net.UDPConn, error) {
	var conns []*net.UDPConn
	err := from.Do(func() error {
		for range cfg.Flows {
			c, err := (&net.Dialer{Control: withHeader(cfg.HopByHop)}).DialContext(ctx, "udp", to.String())
			if err != nil {
				return err
			}
			conns = append(conns, c.(*net.UDPConn))
		}
		return nil
	})
	if err != nil {
		for _, c := range conns {
			c.Close()
		}
	}
	return conns, err
}

// newReceiver listens with room for a burst.
func newReceiver(to Host, cfg DatagramConfig) (*receiver, error) {
	r := &receiver{cfg: cfg, seen: make([]bool, cfg.Count), latest: make([]int, cfg.Flows)}
	err := to.Do(func() (err error) {
		r.conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(cfg.To))
		return err
	})
	if err != nil {
		return nil, err
	}
	raw, err := r.conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var optErr error
	if err := raw.Control(func(fd uintptr) {
		optErr = errors.Join(
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		)
	}); err != nil || optErr != nil {
		return nil, fmt.Errorf("set receive buffer and time stamps: %w", errors.Join(err, optErr))
	}
	return r, nil
}
