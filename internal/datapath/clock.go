package datapath

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// clock maps the coarse monotonic time of the programs to wall time. The
// mapping is made anew at each drain, so that a step of the wall clock or a
// suspended host shifts at most the records of one interval.
type clock struct {
	units  uint32 // now, in the programs' unit
	offset int64  // wall ns − monotonic ns
	mono   int64  // now, monotonic ns
}

// readClock brackets a reading of the wall clock by two of the monotonic one
// and keeps the tightest of a few tries.
func readClock() (clock, error) {
	best := int64(-1)
	var c clock
	for range 4 {
		before, err := clockGettime(unix.CLOCK_MONOTONIC)
		if err != nil {
			return clock{}, err
		}
		wall, err := clockGettime(unix.CLOCK_REALTIME)
		if err != nil {
			return clock{}, err
		}
		after, err := clockGettime(unix.CLOCK_MONOTONIC)
		if err != nil {
			return clock{}, err
		}
		if width := after - before; best < 0 || width < best {
			best = width
			c.offset = wall - before - width/2
			c.mono = after
		}
	}
	c.units = uint32(c.mono >> ingressTimeTIME_SHIFT)
	return c, nil
}

func clockGettime(id int32) (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0, fmt.Errorf("reading clock %d: %w", id, err)
	}
	return ts.Nano(), nil
}

// wall is the wall time, in ns since the epoch, of a time stamp that a program
// took within 26 days before or after the clock was read.
func (c *clock) wall(stamp uint32) int64 {
	age := int64(int32(c.units-stamp)) * int64(timeUnit)
	return c.offset + c.mono&^(int64(timeUnit)-1) - age
}
