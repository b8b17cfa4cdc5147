package datapath

import (
	"context"
	"testing"

	"github.com/cilium/ebpf"

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

// bigTable has 1 << 16 sets of each part.
func bigTable(t *testing.T) (d *Datapath, sets, least uint32) {
	t.Helper()
	const n = 1 << 16
	d = load(t, Config{MaxEntries: n * uint32(ways) * online(t)})
	return d, n, d.shape.layerSets()
}

// As many sets are in use as there were flows recently, and the table has layers for them.
func TestFillingFollowsTheFlows(t *testing.T) {
	d, sets, least := bigTable(t)
	f := d.table.filling
	for i, tc := range []struct {
		flows uint64 // of the fullest processor, in the epoch that ends
		then  uint32 // sets in use from then on, reported by the two epochs before
	}{
		{0, least},
		{20_000, least},
		{0, 20_000},
		{0, 20_000},
		{0, least},
		{1 << 20, least},
		{0, sets},
		{100, sets},
		{17_000, least},
		{0, 17_000},
	} {
		old := d.table.turn()
		if got := f.inUse[1-old]; got != tc.then {
			t.Errorf("turn %d: %d sets are in use, want %d", i, got, tc.then)
		}
		if got, want := *f.word, uint64(tc.then)<<32|uint64(1-old); got != want {
			t.Errorf("turn %d: the control word is %#x, want %#x", i, got, want)
		}
		if got := d.table.available(); got < tc.then {
			t.Errorf("turn %d: layers have %d sets, %d are in use", i, got, tc.then)
		}
		f.drained(old, tc.flows)
	}
}

// The table begins with one layer, and gives back what was not needed for some drains.
func TestTableShrinks(t *testing.T) {
	d, sets, _ := bigTable(t)
	one := d.table.layers.layerBytes()
	bytes := func() int {
		s, err := d.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return int(s.Memory) / one
	}
	if got := bytes(); got != 1 {
		t.Errorf("%d layers at the start", got)
	}
	for int(d.table.filling.used(0)) < int(sets) {
		d.table.grow()
	}
	all := d.shape.layersFor(sets)
	if got := bytes(); got != all {
		t.Fatalf("%d layers for all sets, want %d", got, all)
	}
	var before []int
	for range 3 + quietDrains {
		drained(t, d, 1)
		before = append(before, bytes())
	}
	if before[1] != all || before[len(before)-2] != all || before[len(before)-1] != all-shrinkBy {
		t.Errorf("layers after each drain: %v", before)
	}
	for range all/shrinkBy - 1 {
		drained(t, d, 1)
	}
	if got := bytes(); got != 1 {
		t.Errorf("%d layers in the end", got)
	}
	var inner ebpf.MapID
	if err := d.maps["flows"].Lookup(uint32(1), &inner); err == nil {
		t.Errorf("the programs still have layer 1, map %d", inner)
	}
	if err := d.maps["flows"].Lookup(uint32(0), &inner); err != nil {
		t.Error(err)
	}
}

func TestShapes(t *testing.T) {
	for _, tc := range []struct {
		cpus, entries, sets, layerSets uint32
		layers                         int
	}{
		{1, 1, 1, 1, 1},
		{2, 1, 1, 1, 1},
		{2, 4096, 512, 512, 1},
		{2, 524288, 65536, 2048, 32},
		{2, 5000, 625, 1024, 1},
		{3, 524288, 43691, 1024, 43},
		{64, 524288, 2048, 64, 32},
		{1024, 524288, 128, 4, 32},
		{8192, 1 << 20, 32, 1, 32},
		{1, 1 << 26, 1 << 24, 4096, 4096},
	} {
		s := newShape(tc.cpus, tc.entries)
		if s.sets != tc.sets || s.layerSets() != tc.layerSets || s.layersFor(s.sets) != tc.layers {
			t.Errorf("%d processors, %d entries: %d sets, %d in a layer, %d layers, want %d, %d, %d", tc.cpus, tc.entries,
				s.sets, s.layerSets(), s.layersFor(s.sets), tc.sets, tc.layerSets, tc.layers)
		}
		if s.layerBytes() > 4<<20 && tc.cpus < 8192 {
			t.Errorf("%d processors: layers of %d bytes, which older kernels refuse", tc.cpus, s.layerBytes())
		}
	}
}

// Many flows after a time of few: all packets are in flows, exactly, and the
// table uses more sets before the next drain, and all that flows need after it.
func TestFillingGrows(t *testing.T) {
	flows := scaled(300_000)
	d := load(t, Config{MaxEntries: uint32(4 * flows * uint64(online(t))), RingSize: 64 << 20})
	s := sendOver(t, d, "bench_ingress", flows, nil)
	got := &collector{flows: newAmounts(flows)}
	ctx, stop := context.WithCancel(t.Context())
	streamed := make(chan error, 1)
	go func() { streamed <- d.Stream(ctx, got.add) }()
	f := d.table.filling
	few := f.used(f.current())
	runOn(t, s, 0, 2*flows)
	datapathtest.WaitUntil(t, "more sets in use", func() bool { return f.used(f.current()) >= growth*few })
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
	d, sets, _ := bigTable(t)
	d.table.mu.Lock()
	d.table.growLocked(sets)
	d.table.mu.Unlock()
	f := d.table.filling
	f.grow(sets)
	if old := d.table.turn(); f.used(old) != int(sets) {
		t.Fatalf("%d sets were in use", f.used(old))
	}
	d.table.turn() // nobody drained
	if got := f.used(f.epoch); got != int(sets) {
		t.Errorf("%d sets are left to drain", got)
	}
}
