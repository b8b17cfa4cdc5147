package disk

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/query"
)

// TestClockSteps: where the clock steps back by an hour, and on by a day, every interval is there, once, with the
// times that it had.
func TestClockSteps(t *testing.T) {
	dir := t.TempDir()
	b := newBoth(t, dir)
	const hour, day = 360, 8640 // intervals
	var begins []int
	for n := range 40 {
		begin := n
		switch {
		case n >= 30:
			begin += day
		case n >= 15:
			begin -= hour
		}
		b.fill(begin, numbered(uint64(n)), numbered(uint64(n)))
		if begins = append(begins, begin); n%13 == 12 {
			if err := b.disk.Seal(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := b.disk.Status().Counts; got.ClockSteps != 1 || got.Lost+got.Errors+got.Damaged > 0 {
		t.Errorf("%+v", got)
	}
	if err := b.disk.close(); err != nil {
		t.Fatal(err)
	}
	b.disk = open(t, dir)
	for _, p := range []query.Plan{
		{}, {Since: at(0)}, {Until: at(0)}, {Since: at(day)}, {Since: at(-hour), Until: at(15)}, {Step: 10 * time.Second},
	} {
		want := 0
		for _, begin := range begins {
			if p.Within(at(begin), at(begin+1)) {
				want++
			}
		}
		memory, disk := ask(t, p, b.memory), ask(t, p, b.short, b.disk)
		if diff := gocmp.Diff(memory, disk, sameAnswer); diff != "" || disk.Intervals != want || disk.Records != uint64(2*want) {
			t.Errorf("since %v until %v: %d intervals of %d, %d records (-memory +disk):\n%s", p.Since, p.Until, disk.Intervals, want, disk.Records, diff)
		}
	}
	if err := b.disk.close(); err != nil {
		t.Fatal(err)
	}
}
