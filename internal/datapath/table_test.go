package datapath

import (
	"context"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/test/await"
)

func online(t *testing.T) uint32 {
	t.Helper()
	n, err := kernel.CPUs("online")
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

// bigTable has 1 << 16 sets of each part, in 64 chunks.
func bigTable(t *testing.T) (d *Datapath, sets uint32) {
	t.Helper()
	const n = 1 << 16
	return load(t, Config{MaxEntries: n * uint32(ways) * online(t)}), n
}

// inUse is how many sets of CPU 0 programs use now.
func inUse(d *Datapath) uint32 { return d.table.batches[*d.table.epoch].Sets }

// enlarge gives both parts of CPU 0 so many sets.
func enlarge(t *testing.T, d *Datapath, sets uint32) {
	t.Helper()
	want := make([]uint32, len(d.table.parts))
	want[0], want[1] = sets, sets
	if err := d.table.resize(want); err != nil {
		t.Fatal(err)
	}
}

func TestShapes(t *testing.T) {
	for _, tc := range []struct {
		cpus, entries, sets, chunkSets uint32
		chunks                         int // of a part
	}{
		{1, 1, 1, 1, 1},
		{2, 1, 1, 1, 1},
		{2, 4096, 512, 128, 4},
		{2, 524288, 65536, 1024, 64},
		{2, 5000, 625, 128, 5},
		{3, 524288, 43691, 1024, 43},
		{64, 524288, 2048, 128, 16},
		{1024, 524288, 128, 128, 1},
		{8192, 1 << 20, 32, 32, 1},
		{2, 1 << 22, 1 << 19, 2048, 256},
		{1, 1 << 26, 1 << 24, 2048, 8192},
	} {
		s := newShape(tc.cpus, tc.entries)
		if s.sets != tc.sets || s.chunkSets() != tc.chunkSets || s.chunks(s.sets) != tc.chunks {
			t.Errorf("%d CPUs, %d entries: %d sets, %d in a chunk, %d chunks, want %d, %d, %d", tc.cpus, tc.entries,
				s.sets, s.chunkSets(), s.chunks(s.sets), tc.sets, tc.chunkSets, tc.chunks)
		}
		if s.chunkBytes() > 4<<20 {
			t.Errorf("%d CPUs: chunks of %d bytes, which older kernels refuse", tc.cpus, s.chunkBytes())
		}
	}
}

// As many sets are in use as flows of the last two epochs need, and no more than
// four times as many as before where evictions say how many.
func TestSetsFollowTheFlows(t *testing.T) {
	d, sets := bigTable(t)
	least := d.shape.chunkSets()
	for i, tc := range []struct {
		flows, evicted uint32 // in the epoch that ends
		then           uint32 // sets in use from then on, reported by the two epochs before
	}{
		{0, 0, least},
		{20_000, 0, least},
		{0, 0, 10 * least},
		{0, 0, 10 * least},
		{0, 0, least},
		{2000, 1000, least},
		{2000, 1 << 20, 2 * least},
		{1 << 20, 0, 4 * least},
		{100, 0, sets},
		{5000, 0, sets},
		{0, 0, 3 * least},
	} {
		old := d.table.turn()
		if got := inUse(d); got != tc.then {
			t.Errorf("turn %d: %d sets are in use, want %d", i, got, tc.then)
		}
		p := &d.table.parts[*d.table.epoch]
		if got := uint32(len(p.chunks)) * d.shape.chunkSets(); got < tc.then || p.sets != tc.then {
			t.Errorf("turn %d: chunks have %d sets, %d may hold flows, %d are in use", i, got, p.sets, tc.then)
		}
		p = &d.table.parts[old]
		p.batch.Evicted = tc.evicted
		p.drained(uint64(tc.flows))
	}
}

// A part grows where a sixteenth of its slots was evicted since it grew last.
func TestEvictionsGrowAPart(t *testing.T) {
	d, sets := bigTable(t)
	least := d.shape.chunkSets()
	b := &d.table.batches[0]
	for _, tc := range []struct{ evicted, then uint32 }{
		{0, least},
		{least * 4 / evictedShare / 2, least},
		{least * 4 / evictedShare / 2, 4 * least},
		{least * 4 / evictedShare, 4 * least},
		{1 << 30, 16 * least},
		{1 << 30, sets},
		{1 << 30, sets},
	} {
		b.Evicted += tc.evicted
		d.table.grow()
		if got := inUse(d); got != tc.then {
			t.Errorf("after %d evictions: %d sets, want %d", tc.evicted, got, tc.then)
		}
	}
	for i, p := range d.table.parts[1:] {
		if len(p.chunks) != 1 {
			t.Errorf("part %d, where nothing was evicted, has %d chunks", i+1, len(p.chunks))
		}
	}
}

// The table gives back what was not needed for some drains.
func TestTableShrinks(t *testing.T) {
	d, sets := bigTable(t)
	chunks := func() int { return len(d.table.parts[0].chunks) + len(d.table.parts[1].chunks) }
	enlarge(t, d, sets)
	all := d.shape.chunks(sets)
	var before []int
	for range 2 * (quietDrains + 1) {
		before = append(before, chunks())
		drained(t, d, 1)
	}
	if before[2*quietDrains-2] != 2*all || before[2*quietDrains] != 2 {
		t.Errorf("chunks before each drain: %v", before)
	}
	var inner ebpf.MapID
	if err := d.maps["flows"].Lookup(uint32(1), &inner); err == nil {
		t.Errorf("the programs still have chunk 1, map %d", inner)
	}
	if err := d.maps["flows"].Lookup(uint32(0), &inner); err != nil {
		t.Error(err)
	}
}

// Many flows after a time of few: all packets are in flows, exactly, and the
// table uses more sets before the next drain, and all that flows need after it.
func TestTableGrows(t *testing.T) {
	flows := scaled(300_000)
	d := load(t, Config{MaxEntries: uint32(4 * flows * uint64(online(t))), RingSize: 64 << 20})
	s := sendOver(t, d, "bench_ingress", flows, nil)
	got := &collector{flows: newAmounts(flows)}
	ctx, stop := context.WithCancel(t.Context())
	streamed := make(chan error, 1)
	go func() { streamed <- d.Stream(ctx, got.add) }()
	few := inUse(d)
	runOn(t, s, 0, 2*flows)
	await.True(t, "more sets in use", func() bool { return inUse(d) > few })
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

// A table of the default size takes for flows that come together little more than
// they need.
func TestGrowthIsProportionate(t *testing.T) {
	const flows = 10_000
	cfg := Default()
	cfg.MaxEntries = 524_288
	d := load(t, cfg)
	s := sendOver(t, d, "bench_ingress", flows, nil)
	ctx, stop := context.WithCancel(t.Context())
	streamed := make(chan error, 1)
	go func() { streamed <- d.Stream(ctx, func(*flow.Delta) {}) }()
	idle := d.table.size()
	var most uint64
	for range 6 {
		runOn(t, s, 0, 2*flows)
		if err := d.Drain(func(*flow.Delta) {}); err != nil {
			t.Fatal(err)
		}
		most = max(most, d.table.size())
	}
	stop()
	if err := <-streamed; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes idle, %d with %d flows", idle, most, flows)
	if limit := idle + 8<<20; most > limit {
		t.Errorf("%d bytes with %d flows, want at most %d", most, flows, limit)
	}
}

// What a drain that failed left in an epoch is there for the next one.
func TestDrainAfterAFailedOne(t *testing.T) {
	flows := scaled(20_000)
	d := load(t, Config{MaxEntries: uint32(8 * flows)})
	enlarge(t, d, d.shape.sets)
	s := sendOver(t, d, "bench_ingress", flows, nil)
	runOn(t, s, 0, flows)
	d.table.turn()
	d.table.turn() // nobody drained
	if got := inUse(d); got >= d.shape.sets {
		t.Fatalf("%d sets are in use: all", got)
	}
	got := drained(t, d, flows)
	checkTotals(t, d, s.truth(), got)
	checkFlows(t, s.truth(), got)
}

// Packets whose chunk is missing leave as flows of their own.
func TestMissingChunk(t *testing.T) {
	flows := scaled(1000)
	d := load(t, Config{MaxEntries: 64 << 10, RingSize: 64 << 20})
	enlarge(t, d, 4*d.shape.chunkSets())
	s := sendOver(t, d, "bench_ingress", flows, nil)
	if err := d.maps["flows"].Delete(uint32(1)); err != nil {
		t.Fatal(err)
	}
	runOn(t, s, 0, 2*flows)
	got := drained(t, d, flows)
	sent := s.truth()
	checkTotals(t, d, sent, got)
	checkFlows(t, sent, got)
	// A quarter of the packets look at it first.
	if got.evicted < sent.totalPackets/5 || got.evicted > sent.totalPackets/2 {
		t.Errorf("%d of %d packets left as flows of their own", got.evicted, sent.totalPackets)
	}
}
