package bench

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/export/ipfix"
	"github.com/waymark-net/waymark/internal/flow"
)

// sink sends records as the agent's pipeline does, in batches, to a socket of
// this process that nobody reads: what doesn't fit there is dropped. Go's poller
// doesn't know of the socket, or it would wake up for each datagram that comes.
type sink struct {
	exporter *ipfix.Exporter
	listener int
	batch    []flow.Record
}

const sinkBatch = 512 // records

func newSink() (*sink, error) {
	listener, port, err := listen()
	if err != nil {
		return nil, fmt.Errorf("opening a socket to send records to: %w", err)
	}
	cfg := ipfix.Default()
	cfg.Collector = fmt.Sprintf("udp://127.0.0.1:%d", port)
	exporter, err := ipfix.New(cfg, flow.Origin{Host: "bench"}, time.Now)
	if err != nil {
		_ = unix.Close(listener)
		return nil, err
	}
	return &sink{exporter: exporter, listener: listener}, nil
}

func listen() (fd, port int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	var bound unix.Sockaddr
	err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		bound, err = unix.Getsockname(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, 0, err
	}
	return fd, bound.(*unix.SockaddrInet4).Port, nil
}

func (s *sink) add(ctx context.Context, r *flow.Record) error {
	s.batch = append(s.batch, *r)
	if len(s.batch) < sinkBatch {
		return nil
	}
	return s.flush(ctx)
}

func (s *sink) flush(ctx context.Context) error {
	_, err := s.exporter.Export(ctx, s.batch)
	s.batch = s.batch[:0]
	if err != nil {
		return fmt.Errorf("sending records: %w", err)
	}
	return nil
}

func (s *sink) close() {
	s.exporter.Close() // what could fail is the end of a UDP session
	_ = unix.Close(s.listener)
}
