package vm

import (
	"fmt"
	"time"
)

// clockOption is what a guest's kernel needs to know of its clock, which is the host's counter: on a busy host it
// measures the counter's frequency wrongly, and then its seconds are some tenths of one. Empty where QEMU makes a counter
// of its own.
func clockOption() string {
	const apart = 50 * time.Millisecond
	c0, t0 := moment()
	time.Sleep(apart)
	c1, t1 := moment()
	if c1 == c0 {
		return ""
	}
	return fmt.Sprintf(" tsc_early_khz=%.0f", float64(c1-c0)/t1.Sub(t0).Seconds()/1000)
}

// moment reads counter and clock at the same time, within a microsecond or, on a host that is never so quick, the best of
// some tries.
func moment() (counter uint64, at time.Time) {
	best := time.Hour
	for try := 0; try < 1000 && best > time.Microsecond; try++ {
		before := time.Now()
		c := readTSC()
		if took := time.Since(before); took < best {
			best, counter, at = took, c, before
		}
	}
	return counter, at
}
