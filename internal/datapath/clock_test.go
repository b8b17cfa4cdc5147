package datapath

import (
	"testing"
	"time"
)

// The low half of the monotonic clock and the tick give the whole time, wherever
// the half wraps around, also where a processor was late to count the tick.
func TestExactTimes(t *testing.T) {
	const tick = int64(4 * time.Millisecond)
	for _, mono0 := range []int64{1 << 32, 1<<32 - 1, 5<<32 - tick, 5<<32 + 1, 1 << 50} {
		c := clock{length: tick, stamp: 1000, wall0: 1_700_000_000_000_000_000, mono0: mono0}
		for ago := range uint32(2000) {
			began := mono0 - int64(ago)*tick
			for _, mono := range []int64{began, began + 1, began + tick - 1, began + 3*tick} {
				want := c.wall0 + mono - mono0
				if got := c.exact(c.stamp-ago, uint32(mono)); got != want {
					t.Fatalf("%d ticks ago, %d ns into one: %d, want %d", ago, mono-began, got, want)
				}
			}
		}
	}
	for length, want := range map[time.Duration]uint8{time.Millisecond: 1, 3333333: 4, 10 * time.Millisecond: 10} {
		if got := (&clock{length: int64(length)}).spread(); got != want {
			t.Errorf("a tick of %v spreads over %d ms, want %d", length, got, want)
		}
	}
}

// TestOffset: how both clocks were read does not shift times, a step of the wall clock does, and a sharper reading counts.
func TestOffset(t *testing.T) {
	const wall = int64(1_700_000_000_000_000_000)
	var o offset
	mono := int64(1 << 40)
	for i, c := range []struct{ read, within, want int64 }{
		{0, 100, 0},
		{150, 60, 0},
		{-150, 60, 0},
		{161, 60, 161},
		{60, 20, 60}, // sharper
		{100, 20, 60},
		{1e9, 20, 1e9},
		{1e9 - 3e5, 1e6, 1e9}, // a busy machine
		{0, 1e6, 0},
		{5, 50, 5},
	} {
		mono += 50e6
		if got := o.at(Moment{Mono: mono, Wall: wall + mono + c.read, Within: c.within}); got != wall+c.want {
			t.Errorf("reading %d: %d, want %d", i, got-wall, c.want)
		}
	}
}
