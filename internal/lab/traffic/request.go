package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// RequestConfig is a number of clients that ask a Service.
type RequestConfig struct {
	Network      string // "tcp" or "udp"
	To           netip.AddrPort
	Clients      int           // connections (sockets for UDP) that ask at the same time
	Requests     int           // of each client, one after the other
	RequestSize  int           // bytes, at least MinMessage
	ResponseSize int           // likewise
	Interval     time.Duration // between the starts of two requests of a client; 0: at once
	Timeout      time.Duration // of one request; 0: 5 s
}

// RequestResult is what came of it.
type RequestResult struct {
	Amount
	Requests  uint64
	Lost      uint64    // UDP: without an answer in time
	Latencies Durations // of those with an answer, from before the first byte sent to after the last got
}

// Request asks a Service from a host and returns when all clients are done.
func Request(ctx context.Context, host Host, cfg RequestConfig) (RequestResult, error) {
	if cfg.RequestSize < MinMessage || cfg.ResponseSize < MinMessage || cfg.RequestSize > maxMessage || cfg.ResponseSize > maxMessage {
		return RequestResult{}, fmt.Errorf("request of %d and response of %d bytes: choose %d to %d", cfg.RequestSize, cfg.ResponseSize, MinMessage, maxMessage)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	results := make([]RequestResult, cfg.Clients)
	errs := make([]error, cfg.Clients)
	var wg sync.WaitGroup
	for i := range cfg.Clients {
		wg.Go(func() { results[i], errs[i] = client(ctx, host, cfg) })
	}
	wg.Wait()
	var sum RequestResult
	for _, r := range results {
		sum.add(r.Amount)
		sum.Requests += r.Requests
		sum.Lost += r.Lost
		sum.Latencies = append(sum.Latencies, r.Latencies...)
	}
	if err := errors.Join(errs...); err != nil {
		return sum, fmt.Errorf("request %s %s: %w", cfg.Network, cfg.To, err)
	}
	return sum, nil
}

func client(ctx context.Context, host Host, cfg RequestConfig) (r RequestResult, err error) {
	var c net.Conn
	if err := host.Do(func() (err error) {
		c, err = (&net.Dialer{Timeout: cfg.Timeout}).DialContext(ctx, cfg.Network, cfg.To.String())
		return err
	}); err != nil {
		return r, err
	}
	defer c.Close()
	ask := askDatagram
	if cfg.Network == "tcp" {
		ask = askStream
	}
	start := time.Now()
	for n := range cfg.Requests {
		if err := pace(start, cfg.Interval, n, ctx.Done()); err != nil {
			return r, err
		}
		request := message{size: uint32(cfg.RequestSize), answer: uint32(cfg.ResponseSize), id: uint64(n)}
		before := time.Now()
		if err := c.SetDeadline(before.Add(cfg.Timeout)); err != nil {
			return r, err
		}
		r.Requests++
		err := ask(c, request, &r.Amount)
		if cfg.Network == "udp" && errors.Is(err, os.ErrDeadlineExceeded) {
			r.Lost++
			continue
		}
		if err != nil {
			return r, fmt.Errorf("request %d: %w", n, err)
		}
		r.Latencies = append(r.Latencies, time.Since(before))
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		info, err := finish(tcp)
		r.add(Amount{SentPackets: uint64(info.SegmentsOut), ReceivedPackets: uint64(info.SegmentsIn)})
		return r, err
	}
	return r, nil
}

func askStream(c net.Conn, request message, a *Amount) error {
	n, err := c.Write(request.encode())
	a.SentBytes += uint64(n)
	if err != nil {
		return err
	}
	answer, err := readMessage(c)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if answer.id != request.id {
		return fmt.Errorf("answer to request %d", answer.id)
	}
	a.ReceivedBytes += uint64(answer.size)
	return nil
}

func askDatagram(c net.Conn, request message, a *Amount) error {
	n, err := c.Write(request.encode())
	if err != nil {
		return err
	}
	a.SentPackets++
	a.SentBytes += uint64(n)
	buf := make([]byte, 1<<16)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		a.ReceivedPackets++
		a.ReceivedBytes += uint64(n)
		answer, err := decodeMessage(buf[:n])
		if err != nil {
			return err
		}
		// Doubles, and answers to requests that were given up, are passed over.
		if answer.id == request.id {
			return nil
		}
	}
}
