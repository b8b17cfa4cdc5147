package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
)

// EchoConfig is a number of pings.
type EchoConfig struct {
	To       netip.Addr
	Count    int
	Size     int           // bytes after the echo header
	ID       uint16        // echo identifier: the flow
	Interval time.Duration // between the starts of two requests; the next never starts before an answer
	Timeout  time.Duration // of one; 0: 1 s
}

// EchoResult is what came of it.
type EchoResult struct {
	Amount
	Lost  uint64
	Times Durations // round trips
}

const echoHeader = 8

// ICMP and ICMPv6 message types.
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

// Echo sends ICMP or ICMPv6 echo requests from a host; the kernel at the other
// end answers.
func Echo(ctx context.Context, host Host, cfg EchoConfig) (EchoResult, error) {
	var r EchoResult
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	network, request, reply := "ip4:icmp", byte(echoRequest4), byte(echoReply4)
	if cfg.To.Is6() {
		network, request, reply = "ip6:ipv6-icmp", echoRequest6, echoReply6
	}
	var c *net.IPConn
	if err := host.Do(func() (err error) {
		c, err = net.DialIP(network, nil, &net.IPAddr{IP: cfg.To.AsSlice()})
		return err
	}); err != nil {
		return r, fmt.Errorf("echo to %s: %w", cfg.To, err)
	}
	defer c.Close()
	start := time.Now()
	for n := range cfg.Count {
		if err := pace(start, cfg.Interval, n, ctx.Done()); err != nil {
			return r, fmt.Errorf("echo to %s: %w", cfg.To, err)
		}
		before := time.Now()
		if err := c.SetDeadline(before.Add(cfg.Timeout)); err != nil {
			return r, fmt.Errorf("echo to %s: %w", cfg.To, err)
		}
		if _, err := c.Write(encodeEcho(request, cfg.ID, uint16(n), cfg.Size)); err != nil {
			return r, fmt.Errorf("echo to %s: send: %w", cfg.To, err)
		}
		r.SentPackets++
		r.SentBytes += uint64(cfg.Size)
		err := awaitEcho(c, reply, cfg.ID, uint16(n), &r.Amount)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			r.Lost++
			continue
		}
		if err != nil {
			return r, fmt.Errorf("echo to %s: receive: %w", cfg.To, err)
		}
		r.Times = append(r.Times, time.Since(before))
	}
	return r, nil
}

// awaitEcho reads until the answer comes: a raw socket gets all of the host's
// ICMP. ReadFromIP, other than Read, takes the IPv4 header off.
func awaitEcho(c *net.IPConn, reply byte, id, seq uint16, a *Amount) error {
	buf := make([]byte, 1<<16)
	for {
		n, _, err := c.ReadFromIP(buf)
		if err != nil {
			return err
		}
		m := buf[:n]
		if n < echoHeader || m[0] != reply || binary.BigEndian.Uint16(m[4:]) != id {
			continue
		}
		a.ReceivedPackets++
		a.ReceivedBytes += uint64(n - echoHeader)
		if binary.BigEndian.Uint16(m[6:]) == seq {
			return nil
		}
	}
}

func encodeEcho(kind byte, id, seq uint16, size int) []byte {
	m := make([]byte, echoHeader+size)
	m[0] = kind
	binary.BigEndian.PutUint16(m[4:], id)
	binary.BigEndian.PutUint16(m[6:], seq)
	for i := range m[echoHeader:] {
		m[echoHeader+i] = byte(i)
	}
	// ICMPv6 sums the addresses too; the kernel does that itself (RFC 3542, 3.1).
	if kind == echoRequest4 {
		binary.BigEndian.PutUint16(m[2:], checksum(m))
	}
	return m
}

// checksum is the Internet checksum (RFC 1071).
func checksum(data []byte) uint16 {
	var sum uint32
	for len(data) >= 2 {
		sum += uint32(binary.BigEndian.Uint16(data))
		data = data[2:]
	}
	if len(data) == 1 {
		sum += uint32(data[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
