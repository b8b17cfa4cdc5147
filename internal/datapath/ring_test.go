package datapath

import (
	"context"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
)

// A drain neither fails nor waits when the stream ends in the same moment.
func TestDrainWhileStreamEnds(t *testing.T) {
	d := load(t, Config{MaxEntries: 64})
	ignore := func(*flow.Delta) {}
	for i := range 2000 {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Stream(ctx, ignore) }()
		drained := make(chan error, 1)
		began := time.Now()
		go func() {
			var c clock
			d.ring.clock.Store(&c)
			drained <- d.ring.flush(ignore)
		}()
		for range i % 50 * 20 { // a little later each time
			_ = time.Now()
		}
		stop()
		if err := <-drained; err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if err := <-ended; err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if took := time.Since(began); took > time.Minute/2 {
			t.Fatalf("round %d took %v", i, took)
		}
	}
}

// What a program adds after a drain has read the first half of it is reported by the
// next drain, even if no packet follows.
func TestSumReadUnderWay(t *testing.T) {
	d := load(t, Config{MaxEntries: 64})
	sums := make([]unattributedSum, ebpf.MustPossibleCPU())
	key := unattributedKey{Iface: 1, Proto: 17}
	var packets, bytes uint64
	add := func(d *flow.Delta) { packets, bytes = packets+d.Packets, bytes+d.Bytes }
	for _, now := range []unattributedSum{{Packets: 1}, {Packets: 1, Bytes: 100}} {
		sums[0] = now
		if err := d.maps["unattributed"].Put(key, sums); err != nil {
			t.Fatal(err)
		}
		if err := d.Drain(add); err != nil {
			t.Fatal(err)
		}
	}
	if packets != 1 || bytes != 100 {
		t.Errorf("%d packets and %d bytes reported, want 1 and 100", packets, bytes)
	}
}

// One stream after the other, each until its context ends.
func TestStreamAgain(t *testing.T) {
	d := load(t, Config{MaxEntries: 64})
	for range 3 {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Stream(ctx, func(*flow.Delta) {}) }()
		select {
		case err := <-ended:
			t.Fatalf("the stream ended before its context: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}
