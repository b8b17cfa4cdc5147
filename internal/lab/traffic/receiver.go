package traffic

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// receiver counts the datagrams of a stream.
type receiver struct {
	cfg   DatagramConfig
	conn  *net.UDPConn
	epoch time.Time   // origin of the times in datagrams
	sent  atomic.Bool // the last one is on its way
	count atomic.Int64

	packets, bytes                  uint64
	distinct, duplicates, reordered uint64
	delays                          Durations
	seen                            []bool
	latest                          []int // of each flow: number of the latest, plus 1
}

// take counts one datagram.
func (r *receiver) take(data []byte) error {
	now := time.Since(r.epoch)
	if len(data) != r.cfg.Size {
		return errForeign
	}
	n := binary.BigEndian.Uint64(data)
	if n >= uint64(len(r.seen)) {
		return errForeign
	}
	r.packets++
	r.bytes += uint64(len(data))
	r.count.Add(1)
	if r.seen[n] {
		r.duplicates++
		return nil
	}
	r.seen[n] = true
	r.distinct++
	r.delays = append(r.delays, now-time.Duration(binary.BigEndian.Uint64(data[8:])))
	flow := int(n) % r.cfg.Flows
	if int(n) < r.latest[flow] {
		r.reordered++
	} else {
		r.latest[flow] = int(n) + 1
	}
	return nil
}

// waitFor waits until n datagrams came, but not for ever: some may be lost. It
// returns how many are missing.
func (r *receiver) waitFor(n int) (missing int) {
	deadline := time.Now().Add(100 * time.Millisecond)
	for {
		missing = n - int(r.count.Load())
		if missing <= 0 || time.Now().After(deadline) {
			return max(0, missing)
		}
		time.Sleep(20 * time.Microsecond)
	}
}
