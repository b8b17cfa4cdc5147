package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// receiver counts the datagrams of a stream.
type receiver struct {
	cfg   DatagramConfig
	conn  *net.UDPConn
	sent  atomic.Bool // the last one is on its way
	count atomic.Int64

	packets, bytes                  uint64
	distinct, duplicates, reordered uint64
	delays                          Durations
	seen                            []bool
	latest                          []int // of each flow: number of the latest, plus 1
}

var errForeign = errors.New("a datagram that nobody sent")

func (r *receiver) run() error {
	buf, control := make([]byte, 1<<16), make([]byte, 128)
	for r.distinct < uint64(r.cfg.Count) {
		n, controlLen, _, _, err := r.conn.ReadMsgUDPAddrPort(buf, control)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if r.sent.Load() {
			if err := r.conn.SetReadDeadline(time.Now().Add(r.cfg.Idle)); err != nil {
				return err
			}
		}
		at, err := arrival(control[:controlLen])
		if err != nil {
			return err
		}
		if err := r.take(buf[:n], at); err != nil {
			return err
		}
	}
	return nil
}

// arrival is when the kernel took a datagram in, ns since the Unix epoch.
func arrival(control []byte) (int64, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, fmt.Errorf("time stamp of datagram: %w", err)
	}
	for _, m := range messages {
		var at unix.Timespec
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(at)) {
			at = *(*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			return at.Nano(), nil
		}
	}
	return 0, errors.New("datagram without a time stamp")
}

// take counts one datagram.
func (r *receiver) take(data []byte, at int64) error {
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
	r.delays = append(r.delays, time.Duration(at-int64(binary.BigEndian.Uint64(data[8:]))))
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
