package wire

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// maxQueued is how many bytes of memory frames under way may take.
const maxQueued = 256 << 20

// sizes of memory for frames: usual ones, jumbo ones, bursts.
var sizes = [...]int{2048, 16 << 10, vlanTag + vnetHeader + maxFrame}

// direction moves the frames that go one way.
type direction struct {
	cfg    Direction
	start  time.Time     // origin of time
	offset time.Duration // of the wall clock, which stamps frames, from our time
	sched  schedule
	queued int                       // bytes of memory
	free   [len(sizes)][][]byte      // memory of frames that left
	change atomic.Pointer[Direction] // what applies from the next frame on

	mu        sync.Mutex // guards what follows
	c         Counts
	lateTotal time.Duration
}

func newDirection(cfg Direction, start time.Time) *direction {
	cfg = cfg.withDefaults()
	return &direction{cfg: cfg, start: start, sched: schedule{cfg: cfg}}
}

func (c Direction) withDefaults() Direction {
	if c.Match == nil {
		c.Match = Packets
	}
	if c.ReorderWait == 0 {
		c.ReorderWait = 100 * time.Millisecond
	}
	return c
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
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer bePunctual()()

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

// bePunctual has the thread woken to the microsecond, and before others that have
// work: a late wire is a wrong wire. Where it may not, Counts tell how late it was.
// It returns what undoes it.
func bePunctual() (undo func()) {
	const slack, defaultSlack = 1, 0 // nanoseconds; 0 brings back the 50 µs of every thread
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, slack, 0, 0, 0)
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0)
	return func() {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, defaultSlack, 0, 0, 0)
		_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
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

// compareClocks notices when the wall clock was set or has drifted.
func (d *direction) compareClocks() {
	const tolerance, bracket = 20 * time.Microsecond, 10 * time.Microsecond
	for range 10 {
		before := time.Since(d.start)
		wall := time.Duration(time.Now().UnixNano())
		after := time.Since(d.start)
		offset := wall - before
		if moved := offset - d.offset; moved.Abs() < tolerance {
			return
		}
		// An interruption between the readings looks the same.
		if after-before < bracket {
			d.offset = offset
			d.sched.clockSet()
			return
		}
	}
}

// receive takes in what waits, up to a few batches: frames that are due go first.
func (d *direction) receive(from *port) error {
	d.compareClocks()
	if c := d.change.Swap(nil); c != nil {
		d.cfg, d.sched.cfg = *c, *c
	}
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
	at := time.Since(d.start)
	if r.arrived != 0 {
		at = min(at, time.Duration(r.arrived)-d.offset)
	}
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
