package bench

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/waymark-net/waymark/internal/export/ipfix"
	"github.com/waymark-net/waymark/internal/flow"
)

// sink sends records as the agent's pipeline does, in batches, to a socket of
// this process that nobody reads: what doesn't fit there is dropped.
type sink struct {
	exporter *ipfix.Exporter
	listener net.PacketConn
	batch    []flow.Record
}

const sinkBatch = 512 // records

func newSink() (*sink, error) {
	listener, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("opening a socket to send records to: %w", err)
	}
	cfg := ipfix.Default()
	cfg.Collector = "udp://" + listener.LocalAddr().String()
	exporter, err := ipfix.New(cfg, flow.Origin{Host: "bench"}, time.Now)
	if err != nil {
		listener.Close()
		return nil, err
	}
	return &sink{exporter: exporter, listener: listener}, nil
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
	s.listener.Close()
}
