package datapath

import (
	"context"
	"testing"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/kernel"
)

func online(t *testing.T) uint32 {
	t.Helper()
	n, err := kernel.CPUs("online")
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

// As many sets are in use as recent epochs had flows.
func TestFillingFollowsTheFlows(t *testing.T) {
	const sets = 1 << 16
	d := load(t, Config{MaxEntries: sets * uint32(ways) * online(t)})
	f := d.table.filling
	for i, tc := range []struct {
		flows uint64 // of the fullest processor, in the epoch that ends
		then  uint32 // sets in use from then on, reported by the two epochs before
	}{
		{0, sets},
		{0, sets},
		{0, leastSets}, // nothing is known at first
		{5000, leastSets},
		{0, 5000},
		{0, 5000},
		{0, leastSets},
		{1 << 20, leastSets},
		{0, sets},
		{100, sets},
		{7000, leastSets},
		{0, 7000},
	} {
		old := f.turn()
		if got := f.inUse[1-old]; got != tc.then {
			t.Errorf("turn %d: %d sets are in use, want %d", i, got, tc.then)
		}
		if got, want := *f.word, uint64(tc.then)<<32|uint64(1-old); got != want {
			t.Errorf("turn %d: the programs get %#x, want %#x", i, got, want)
		}
		f.drained(old, tc.flows)
	}
}

// Many flows after a time of few: all packets are in flows, exactly, and the
// table uses all its room before the next drain.
func TestFillingGrows(t *testing.T) {
	flows := scaled(300_000)
	d := load(t, Config{MaxEntries: uint32(4 * flows * uint64(online(t)))})
	s := sendOver(t, d, "bench_ingress", flows, nil)
	got := &collector{flows: newAmounts(flows)}
	ctx, stop := context.WithCancel(t.Context())
	streamed := make(chan error, 1)
	go func() { streamed <- d.Stream(ctx, got.add) }()
	for range 4 {
		if err := d.Drain(got.add); err != nil {
			t.Fatal(err)
		}
	}
	f := d.table.filling
	if few := f.used(f.epoch); few != leastSets {
		t.Fatalf("%d sets are in use for no flow", few)
	}
	runOn(t, s, 0, 2*flows)
	datapathtest.WaitUntil(t, "all sets in use", func() bool { return f.used(f.epoch) == int(f.sets) })
	for range 3 {
		if err := d.Drain(got.add); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-streamed; err != nil {
		t.Fatal(err)
	}
	sent := s.truth()
	checkTotals(t, d, sent, got)
	checkFlows(t, sent, got)
	if got.evicted == 0 {
		t.Error("no flow left through the ring")
	}
}

// What a drain that failed left in an epoch is there for the next one.
func TestFillingAfterAFailedDrain(t *testing.T) {
	d := load(t, Config{MaxEntries: 1 << 16 * uint32(ways) * online(t)})
	f := d.table.filling
	f.flows = [2]uint64{}
	if old := f.turn(); f.used(old) != 1<<16 {
		t.Fatalf("%d sets were in use", f.used(old))
	}
	f.turn() // nobody drained
	if got := f.used(f.epoch); got != 1<<16 {
		t.Errorf("%d sets are left to drain", got)
	}
}
