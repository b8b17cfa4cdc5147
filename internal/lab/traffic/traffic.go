// Package traffic sends traffic between hosts of a lab. Input: endpoints, protocol
// and amount. Output: the ground truth, that is packets and bytes that each side
// sent and received, and response times, which the demo and the tests compare with
// measurements.
package traffic

import (
	"errors"
	"slices"
	"time"
)

// Host is where sockets are made, such as a lab.Host. Do runs a function in the
// host's network namespace; a socket stays where it was made.
type Host interface {
	Do(fn func() error) error
}

// Amount is what one side sent and got. Packets are datagrams for UDP and ICMP;
// for TCP the segments that TCP_INFO counts, which leaves out a server's SYN-ACK.
// Bytes are payload above the transport header (for ICMP: above the echo header).
type Amount struct {
	SentPackets     uint64
	SentBytes       uint64
	ReceivedPackets uint64
	ReceivedBytes   uint64
}

func (a *Amount) add(b Amount) {
	a.SentPackets += b.SentPackets
	a.SentBytes += b.SentBytes
	a.ReceivedPackets += b.ReceivedPackets
	a.ReceivedBytes += b.ReceivedBytes
}

// Durations are measured times.
type Durations []time.Duration

// Percentile is the nearest-rank percentile, 0 < p <= 100; 0 when there is none.
func (d Durations) Percentile(p float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	rank := int(p/100*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// Median is the 50th percentile.
func (d Durations) Median() time.Duration { return d.Percentile(50) }

// Fragments is into how many IP packets a UDP datagram of size bytes falls on a
// path of that MTU (RFC 791, RFC 8200 section 4.5); without options, each but the
// last carries a multiple of eight bytes.
func Fragments(size, mtu int, ipv6 bool) int {
	const udp, ipv4Header, ipv6Header, fragmentHeader = 8, 20, 40, 8
	header := ipv4Header
	if ipv6 {
		header = ipv6Header
	}
	if size+udp+header <= mtu {
		return 1
	}
	if ipv6 {
		header += fragmentHeader
	}
	each := (mtu - header) / 8 * 8
	return (size + udp + each - 1) / each
}

// pace waits until the n-th of events that are interval apart, from start on.
func pace(start time.Time, interval time.Duration, n int, done <-chan struct{}) error {
	wait := time.Until(start.Add(time.Duration(n) * interval))
	if wait <= 0 {
		select {
		case <-done:
			return errStopped
		default:
			return nil
		}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-done:
		return errStopped
	case <-t.C:
		return nil
	}
}

var errStopped = errors.New("stopped before the end")
