package datapath

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// ticks relates the ticks of the kernel's timer (jiffies), by which programs
// stamp packets, to CLOCK_MONOTONIC. Both stand still in a suspended host and
// never part.
type ticks struct {
	length int64  // of a tick, ns
	stamp  uint32 // the low half of a tick's number
	mono   int64  // when it began, ns
	wall   *offset
}

// offset is what wall time is ahead of CLOCK_MONOTONIC, in ns. What both clocks were read with another delay is no change of
// it: first packets of both directions, often on both sides of a drain, are compared to the µs.
type offset struct {
	mu         sync.Mutex
	ns, within int64 // within: it may be so much more or less; 0: not known yet
}

// at is the offset as of a reading.
func (o *offset) at(now Moment) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	read := now.Wall - now.Mono
	if change := max(read-o.ns, o.ns-read); o.within == 0 || change > o.within+now.Within || 4*now.Within < o.within {
		o.ns, o.within = read, max(now.Within, 1)
	}
	return o.ns
}

// newTicks waits for a few ticks to begin, and takes the one whose beginning it
// saw best.
func newTicks() (ticks, error) {
	var res unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res); err != nil {
		return ticks{}, fmt.Errorf("reading the length of a tick: %w", err)
	}
	read, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "waymark_tick", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.FnJiffies64.Call(), asm.Return()},
	})
	if err != nil {
		return ticks{}, fmt.Errorf("loading waymark_tick: %w", explain(err))
	}
	defer read.Close()

	t := ticks{length: res.Nano(), wall: &offset{}}
	frame := make([]byte, 64)
	best := int64(-1)
	var last uint32
	for begun := -1; begun < 3; {
		before, err := clockGettime(unix.CLOCK_MONOTONIC)
		if err != nil {
			return ticks{}, err
		}
		stamp, err := read.Run(&ebpf.RunOptions{Data: frame})
		if err != nil {
			return ticks{}, fmt.Errorf("reading the number of the tick: %w", err)
		}
		after, err := clockGettime(unix.CLOCK_MONOTONIC)
		if err != nil {
			return ticks{}, err
		}
		if stamp == last {
			continue
		}
		last = stamp
		if width := after - before; begun >= 0 && (best < 0 || width < best) {
			best, t.stamp, t.mono = width, stamp, before
		}
		begun++
	}
	return t, nil
}

// clock maps the time of the programs to wall time. The mapping is made again at
// each drain, so that a step of the wall clock or a suspended host shifts at
// most the records of one interval.
type clock struct {
	length int64  // of a tick, ns
	stamp  uint32 // of the tick that it is
	wall0  int64  // when that began, ns since the Unix epoch
	mono0  int64  // likewise, ns of CLOCK_MONOTONIC
}

// read finds which tick it is, and what wall time it began at.
func (t *ticks) read() (clock, error) {
	now, err := Now()
	if err != nil {
		return clock{}, err
	}
	passed := (now.Mono - t.mono) / t.length
	began := t.mono + passed*t.length
	return clock{length: t.length, stamp: t.stamp + uint32(passed), wall0: t.wall.at(now) + began, mono0: began}, nil
}

func clockGettime(id int32) (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0, fmt.Errorf("reading clock %d: %w", id, err)
	}
	return ts.Nano(), nil
}

// wall is the beginning of a tick in wall time, in ns since the Unix epoch, of
// a stamp that a program took within 2^31 ticks (24 days or more) before or
// after the clock was read.
func (c *clock) wall(stamp uint32) int64 {
	return c.wall0 - int64(int32(c.stamp-stamp))*c.length
}

// exact is the wall time of a packet in the given tick, of which a program also
// took the low half of the monotonic time: 4.3 s, far longer than a tick.
func (c *clock) exact(stamp, ns uint32) int64 {
	began := c.wall(stamp)
	mono := uint32(c.mono0 + began - c.wall0)
	return began + int64(int32(ns-mono))
}

// spread is how much later than its tick began a packet may have come, in ms.
func (c *clock) spread() uint8 {
	return uint8(min((c.length+int64(time.Millisecond)-1)/int64(time.Millisecond), math.MaxUint8))
}

// Moment is a time on two clocks.
type Moment struct {
	Mono int64 // CLOCK_MONOTONIC, ns
	Wall int64 // ns since the Unix epoch

	Within int64 // ns that Wall may be more or less at this Mono
}

// Now reads both. Of three readings the one that took the shortest time is the most exact: a busy machine may stop this
// thread for ms between the clocks.
func Now() (now Moment, err error) {
	best := int64(math.MaxInt64)
	for range 3 {
		before, err := clockGettime(unix.CLOCK_MONOTONIC)
		if err != nil {
			return Moment{}, err
		}
		wall := time.Now().UnixNano()
		after, err := clockGettime(unix.CLOCK_MONOTONIC)
		if err != nil {
			return Moment{}, err
		}
		if took := after - before; took < best {
			best, now = took, Moment{Mono: before + took/2, Wall: wall, Within: took/2 + 1}
		}
	}
	return now, nil
}
