package ioam

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/wire/ioam"
)

// clockInterval is how long a step of the clock may go unnoticed. Both clocks run at
// the same speed.
const clockInterval = time.Second

// wallOffset is what turns the monotonic clock into the seconds of a time format, in ns.
func wallOffset(f ioam.TimeFormat) int64 {
	epoch, _ := f.Split(time.Unix(0, 0))
	now, _ := datapath.Now() // reading these clocks never fails
	return now.Wall - now.Mono + int64(epoch)*int64(time.Second)
}

func clock(id int32) int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts) // these two never fail
	return ts.Nano()
}

// Clock is what the kernel knows of this host's clock.
type Clock struct {
	Synchronized bool          // something steers it: NTP, PTP
	MaxError     time.Duration // at most so far off; nothing where it is not synchronized
}

// ReadClock asks the kernel, as adjtimex(8) does.
func ReadClock() (c Clock, err error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return c, fmt.Errorf("reading the state of the clock: %w", err)
	}
	if state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0 {
		c = Clock{Synchronized: true, MaxError: time.Duration(t.Maxerror) * time.Microsecond}
	}
	return c, nil
}

// followClock keeps the offset of the programs right.
func (r *Registrar) followClock() {
	r.follow(clockInterval, func() error {
		return r.do(func() error { // fails when the datapath is closed
			c := r.control
			return r.publish(&c)
		})
	})
}

// follow measures at every interval until the stage ends. What cannot be measured stays as it was,
// or is not available in traces.
func (r *Registrar) follow(interval time.Duration, measure func() error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
			_ = measure()
		}
	}
}
