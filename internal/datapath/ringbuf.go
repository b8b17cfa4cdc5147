package datapath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// Ringbuf reads a BPF ring buffer without ever blocking a thread in the
// kernel: a thread that enters a system call indefinitely may do so just when Go
// stops the world, which then waits for it, a minute even.
type Ringbuf struct {
	ring   *ringbuf.Reader
	file   *os.File // the map, for Go's poller to wait on
	conn   syscall.RawConn
	wakeup int // bytes from which on programs wake the reader

	mu     sync.Mutex // held while the ring is read
	record ringbuf.Record
	closed bool
}

// OpenRingbuf reads m, whose programs wake the reader when wakeup bytes wait.
func OpenRingbuf(m *ebpf.Map, wakeup int) (*Ringbuf, error) {
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		return nil, err
	}
	reader.SetDeadline(time.Unix(1, 0)) // it gives what there is, and never waits
	r := &Ringbuf{ring: reader, wakeup: wakeup}
	if err := r.openFile(m); err != nil {
		reader.Close()
		return nil, err
	}
	return r, nil
}

func (r *Ringbuf) openFile(m *ebpf.Map) error {
	fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicating the descriptor of a ring: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return fmt.Errorf("making the descriptor of a ring non-blocking: %w", err)
	}
	r.file = os.NewFile(uintptr(fd), "BPF ring buffer")
	if err := r.file.SetReadDeadline(time.Time{}); err != nil { // is it pollable?
		r.file.Close()
		return fmt.Errorf("waiting for a ring: %w", err)
	}
	r.conn, err = r.file.SyscallConn()
	return err
}

// Wait returns when programs woke the reader; false when ctx ended or the reader
// was closed.
func (r *Ringbuf) Wait(ctx context.Context) (bool, error) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = r.file.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() { // for the next one to wait
			<-ended
			_ = r.file.SetReadDeadline(time.Time{})
		}
	}()
	woken := false
	err := r.conn.Read(func(uintptr) bool {
		// A wakeup of before this call is forgotten, but not what it was for.
		defer func() { woken = true }()
		return woken || r.ring.AvailableBytes() >= r.wakeup
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

// Read gives what was in the ring when it was called to take, which must not
// keep it.
func (r *Ringbuf) Read(take func([]byte) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	for left := r.ring.AvailableBytes(); left > 0; {
		switch err := r.ring.ReadInto(&r.record); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil // what was left was discarded by the program that reserved it
		case err != nil:
			return err
		}
		left -= unix.BPF_RINGBUF_HDR_SZ + (len(r.record.RawSample)+7)&^7
		if err := take(r.record.RawSample); err != nil {
			return err
		}
	}
	return nil
}

// Close ends a wait.
func (r *Ringbuf) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.file.Close() // after the last look at the ring that wait takes
	r.ring.Close()
}
