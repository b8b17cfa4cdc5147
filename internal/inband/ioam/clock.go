package ioam

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/wire/ioam"
)

// clockInterval is how long a step of the clock may go unnoticed. Both clocks run at
// the same speed.
const clockInterval = time.Second

// wallOffset is what turns the monotonic clock into the seconds of a time format, in ns.
func wallOffset(f ioam.TimeFormat) int64 {
	epoch, _ := f.Split(time.Unix(0, 0))
	best, offset := int64(1<<62), int64(0)
	for range 3 { // the reading that took the shortest time is the most exact
		before := clock(unix.CLOCK_MONOTONIC)
		wall := clock(unix.CLOCK_REALTIME)
		if took := clock(unix.CLOCK_MONOTONIC) - before; took < best {
			best, offset = took, wall-before-took/2
		}
	}
	return offset + int64(epoch)*int64(time.Second)
}

func clock(id int32) int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts) // these two never fail
	return ts.Nano()
}

// followClock keeps the offset of the programs right.
func (r *Registrar) followClock() {
	tick := time.NewTicker(clockInterval)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
			_ = r.do(func() error { // fails when the datapath is closed
				c := r.control
				return r.publish(&c)
			})
		}
	}
}
