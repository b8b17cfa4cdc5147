package wire

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// play lets frames with numbers 1, 2, … arrive at the given times and returns
// what leaves, in order.
func play(s *schedule, arrivals []time.Duration, matches func(n uint64) bool) (order []uint64, at []time.Duration) {
	takeUntil := func(now time.Duration) {
		for {
			d, ok := s.take(now)
			if !ok {
				return
			}
			order = append(order, binary.BigEndian.Uint64(d.frame))
			at = append(at, d.due)
		}
	}
	for i, t := range arrivals {
		takeUntil(t)
		n := uint64(i + 1)
		s.arrive(t, binary.BigEndian.AppendUint64(nil, n), matches(n), bytes.Clone)
	}
	takeUntil(time.Hour)
	return order, at
}

func all(uint64) bool { return true }

func TestSchedule(t *testing.T) {
	const ms = time.Millisecond
	even := func(n uint64) bool { return n%2 == 0 }
	for _, c := range []struct {
		name    string
		cfg     Direction
		gap     time.Duration // between arrivals
		frames  int
		matches func(uint64) bool
		want    []uint64
	}{
		{"nothing asked for", Direction{}, ms, 4, all, []uint64{1, 2, 3, 4}},
		{"drop", Direction{DropEvery: 3}, ms, 7, all, []uint64{1, 2, 4, 5, 7}},
		{"drop all", Direction{DropEvery: 1}, ms, 3, all, nil},
		{"duplicate", Direction{DuplicateEvery: 2}, ms, 4, all, []uint64{1, 2, 2, 3, 4, 4}},
		{"reorder", Direction{ReorderEvery: 3, ReorderWait: 10 * ms}, ms, 7, all, []uint64{1, 2, 4, 3, 5, 7, 6}},
		{"reorder, nothing follows", Direction{ReorderEvery: 3, ReorderWait: 10 * ms}, ms, 3, all, []uint64{1, 2, 3}},
		{"reorder, follows too late", Direction{ReorderEvery: 2, ReorderWait: ms}, 5 * ms, 4, all, []uint64{1, 2, 3, 4}},
		{"only what matches is dropped", Direction{DropEvery: 2}, ms, 8, even, []uint64{1, 2, 3, 5, 6, 7}},
		{"only what matches overtakes", Direction{ReorderEvery: 2, ReorderWait: 10 * ms}, ms, 8, even, []uint64{1, 2, 3, 5, 6, 4, 7, 8}},
		{"dropped does not overtake", Direction{DropEvery: 3, ReorderEvery: 2, ReorderWait: 10 * ms}, ms, 4, all, []uint64{1, 4, 2}},
		{"drop before duplicate", Direction{DropEvery: 4, DuplicateEvery: 2}, ms, 4, all, []uint64{1, 2, 2, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var arrivals []time.Duration
			for i := range c.frames {
				arrivals = append(arrivals, time.Duration(i)*c.gap)
			}
			got, _ := play(&schedule{cfg: c.cfg}, arrivals, c.matches)
			if !slices.Equal(got, c.want) {
				t.Fatalf("left %v, want %v", got, c.want)
			}
		})
	}
}

// What two CPUs hand over in the wrong order leaves in the right one.
func TestScheduleSorts(t *testing.T) {
	const us, s = time.Microsecond, time.Second
	for _, c := range []struct {
		name  string
		delay time.Duration
		at    []time.Duration
		want  []uint64
	}{
		{"one late", s, []time.Duration{10 * us, 30 * us, 20 * us, 40 * us}, []uint64{1, 3, 2, 4}},
		{"several late", s, []time.Duration{30 * us, 10 * us, 20 * us}, []uint64{2, 3, 1}},
		{"at the same time", s, []time.Duration{10 * us, 10 * us, 10 * us}, []uint64{1, 2, 3}},
		{"much later", s, []time.Duration{10 * us, 3 * s, 2 * s}, []uint64{1, 3, 2}},
	} {
		sched := &schedule{cfg: Direction{Delay: c.delay}}
		if got, _ := play(sched, c.at, all); !slices.Equal(got, c.want) {
			t.Errorf("%s: left %v, want %v", c.name, got, c.want)
		}
	}
}

func TestScheduleAfterTheClockWasSet(t *testing.T) {
	s := &schedule{cfg: Direction{Delay: time.Second}}
	for i, at := range []time.Duration{30, 10, 20} {
		if i == 1 {
			s.clockSet()
		}
		s.arrive(at, binary.BigEndian.AppendUint64(nil, uint64(i+1)), true, bytes.Clone)
	}
	if got, _ := play(s, nil, all); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("left %v, want 1 2 3", got)
	}
}

// Whatever is asked for and whenever frames arrive: nothing is lost, doubled or
// swapped but what is counted so, and nothing leaves before its time.
func TestScheduleKeepsAccount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.Uint64Range(0, 5)
		cfg := Direction{
			Delay:          time.Duration(rapid.IntRange(0, 20).Draw(t, "delay")),
			DropEvery:      every.Draw(t, "drop"),
			DuplicateEvery: every.Draw(t, "duplicate"),
			ReorderEvery:   rapid.SampledFrom([]uint64{0, 2, 3, 5}).Draw(t, "reorder"),
			ReorderWait:    time.Duration(rapid.IntRange(0, 20).Draw(t, "wait")),
		}
		gaps := rapid.SliceOfN(rapid.IntRange(0, 10), 0, 200).Draw(t, "gaps")
		matching := rapid.Uint64().Draw(t, "matching")
		var arrivals []time.Duration
		at := time.Duration(100)
		for _, g := range gaps {
			at += time.Duration(g)
			arrivals = append(arrivals, at)
		}
		s := &schedule{cfg: cfg}
		order, due := play(s, arrivals, func(n uint64) bool { return matching>>(n%64)&1 == 1 })

		left := map[uint64]int{}
		for i, n := range order {
			left[n]++
			if due[i] < arrivals[n-1]+cfg.Delay {
				t.Fatalf("frame %d arrived at %d and left at %d, delay %d", n, arrivals[n-1], due[i], cfg.Delay)
			}
		}
		var doubled, swapped uint64
		for n, times := range left {
			if times > 2 {
				t.Fatalf("frame %d left %d times", n, times)
			}
			doubled += uint64(times - 1)
		}
		seen := map[uint64]bool{}
		var highest uint64
		for _, n := range order {
			if !seen[n] && n < highest {
				swapped++
			}
			seen[n] = true
			highest = max(highest, n)
		}
		if lost := uint64(len(arrivals) - len(left)); lost != s.dropped || doubled != s.duplicated || swapped > s.reordered+s.waited {
			t.Fatalf("%d lost, %d doubled, %d swapped; counted %d, %d, %d and %d that waited",
				lost, doubled, swapped, s.dropped, s.duplicated, s.reordered, s.waited)
		}
		if d := cfg.DropEvery; d > 0 && s.dropped != s.matched/d {
			t.Fatalf("dropped %d of %d, every %d", s.dropped, s.matched, d)
		}
		if _, ok := s.next(); ok {
			t.Fatal("something is still under way")
		}
	})
}
