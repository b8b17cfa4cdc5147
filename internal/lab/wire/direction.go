package wire

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxQueued is how many octets of memory frames under way may take.
const maxQueued = 256 << 20

// sizes of memory for frames: usual ones, jumbo ones, bursts.
var sizes = [...]int{2048, 16 << 10, vlanTag + vnetHeader + maxFrame}

// direction moves the frames that go one way.
type direction struct {
	cfg    Direction
	start  time.Time // origin of time
	sched  schedule
	queued int                  // octets of memory
	free   [len(sizes)][][]byte // memory of frames that left

	mu        sync.Mutex // guards what follows
	c         Counts
	lateTotal time.Duration
}

func newDirection(cfg Direction, start time.Time) *direction {
	if cfg.Match == nil {
		cfg.Match = Packets
	}
	if cfg.ReorderWait == 0 {
		cfg.ReorderWait = 100 * time.Millisecond
	}
	return &direction{cfg: cfg, start: start, sched: schedule{cfg: cfg}}
}

func (d *direction) counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.c
	if c.Delivered > 0 {
		c.LateMean = d.lateTotal / time.Duration(c.Delivered)
	}
	return c
}

// run moves frames until the eventfd stop is set.
func (d *direction) run(from, to *port, stop int) error {
	// Wake-ups to the microsecond; the slack of 50 is the thread's default.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set timer slack: %w", err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // 0: the default again

	fds := []unix.PollFd{{Fd: int32(from.fd), Events: unix.POLLIN}, {Fd: int32(stop), Events: unix.POLLIN}}
	for {
		d.deliver(to)
		_, err := unix.Ppoll(fds, d.untilNext(), nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for frames: %w", err)
		}
		if fds[1].Revents != 0 {
			return nil
		}
		if err := d.receive(from); err != nil {
			return err
		}
	}
}

// untilNext is how long to wait for the next frame to leave; nil: for ever.
func (d *direction) untilNext() *unix.Timespec {
	due, ok := d.sched.next()
	if !ok {
		return nil
	}
	left := unix.NsecToTimespec(int64(max(0, due-time.Since(d.start))))
	return &left
}

// receive takes in what waits, up to a few batches: frames that are due go first.
func (d *direction) receive(from *port) error {
	for range 4 {
		n, err := from.receive(d.take)
		if err != nil && !errors.Is(err, errUnsupported) {
			return err
		}
		d.mu.Lock()
		if err != nil {
			d.c.Unsupported++
		}
		d.c.Overflow += from.overflow()
		d.c.Matched = d.sched.matched
		d.c.Dropped, d.c.Duplicated = d.sched.dropped, d.sched.duplicated
		d.c.Reordered, d.c.Waited = d.sched.reordered, d.sched.waited
		d.mu.Unlock()
		if err == nil && n < batch {
			return nil
		}
	}
	return nil
}

func (d *direction) take(r received) {
	length := len(r.buf) - vnetHeader
	full := d.queued >= maxQueued
	d.mu.Lock()
	d.c.Frames++
	d.c.Bytes += uint64(max(0, length))
	switch {
	case !r.whole:
		d.c.Unsupported++
	case full:
		d.c.QueueFull++
	}
	d.mu.Unlock()
	if !r.whole || full {
		return
	}
	at := time.Since(d.start) - r.age
	kept := d.keep(r.buf)
	if !d.sched.arrive(at, kept, d.cfg.Match(r.buf[vnetHeader:]), d.keep) {
		d.release(kept)
	}
}

// keep copies a frame into memory of its own.
func (d *direction) keep(buf []byte) []byte {
	class, _ := slices.BinarySearch(sizes[:], len(buf))
	free := &d.free[class]
	var mem []byte
	if n := len(*free); n > 0 {
		mem, *free = (*free)[n-1], (*free)[:n-1]
	} else {
		mem = make([]byte, sizes[class])
	}
	d.queued += sizes[class]
	return mem[:copy(mem, buf)]
}

func (d *direction) release(buf []byte) {
	class, _ := slices.BinarySearch(sizes[:], cap(buf))
	d.queued -= sizes[class]
	d.free[class] = append(d.free[class], buf[:cap(buf)])
}

// deliver sends everything that is due.
func (d *direction) deliver(to *port) {
	for {
		now := time.Since(d.start)
		dep, ok := d.sched.take(now)
		if !ok {
			return
		}
		err := to.send(dep.frame)
		d.release(dep.frame)
		d.mu.Lock()
		if err != nil {
			d.c.SendFailed++
		} else {
			d.c.Delivered++
			late := now - dep.due
			d.lateTotal += late
			d.c.LateMax = max(d.c.LateMax, late)
		}
		d.c.Waited = d.sched.waited
		d.mu.Unlock()
	}
}
