package datapath

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// onOneProcessor keeps the calling goroutine on a processor until back is called:
// each processor has batches of its own.
func onOneProcessor(t rapid.TB) (back func()) {
	t.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	one.Set(0)
	if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &one)); err != nil {
		t.Fatalf("moving to processor 0: %v", err)
	}
	return func() {
		if unix.SchedSetaffinity(0, &before) == nil { // else the thread ends with its goroutine
			runtime.UnlockOSThread()
		}
	}
}

// TestBatchesAgree: packets that are counted by the kernel, together, give the
// same flows as those that a drain finds waiting, each alone.
func TestBatchesAgree(t *testing.T) {
	var frames []packet.Frame
	for _, c := range packet.Cases() {
		for _, f := range c.Frames {
			if !f.L3 && testRunnable(f) == "" {
				frames = append(frames, f)
			}
		}
	}
	together, alone := load(t, Config{MaxEntries: 4096}), load(t, Config{MaxEntries: 4096})
	random := packet.Random()
	var batches int
	rapid.Check(t, func(rt *rapid.T) {
		defer onOneProcessor(rt)()
		send := func(d *Datapath, f packet.Frame) {
			ctx := skb{GSOSegs: uint32(f.GSO.Segments), GSOSize: uint32(f.GSO.Size)}
			if _, err := d.programs[variant{}].ingress.Run(&ebpf.RunOptions{Data: f.Data, Context: &ctx}); err != nil {
				rt.Fatalf("running %d octets: %v", len(f.Data), err)
			}
		}
		var one []flow.Delta
		for range 40 {
			f := packet.Frame{Data: random.Draw(rt, "random")}
			if testRunnable(f) != "" || rapid.Bool().Draw(rt, "from the table") {
				f = rapid.SampledFrom(frames).Draw(rt, "frame")
			}
			for range rapid.IntRange(1, 4).Draw(rt, "times") {
				send(together, f)
				send(alone, f)
				one = append(one, counted(t, alone)...)
			}
		}
		for _, s := range together.table.slots {
			for _, w := range s.Way {
				batches += int(w.Packets)
			}
		}
		// Two flows of the kernel, with a tag of VLAN 0 and without, may be one here,
		// whose first packet is that of either.
		first := cmpopts.IgnoreFields(flow.Counts{}, "TOS", "FlowLabel")
		if diff := cmp.Diff(merged(one), counted(t, together), anyOrder, first, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("flows (-alone +together):\n%s", diff)
		}
	})
	if batches < 1000 {
		t.Errorf("%d packets were counted by the kernel", batches)
	}
	t.Logf("%d packets were counted by the kernel", batches)
}

// Packets wait until there are eight, and no longer than a drain.
func TestBatchesWait(t *testing.T) {
	d := load(t, Config{MaxEntries: 1024})
	size := len(packetBatch{}.Packet)
	f := packet.Frame{Data: packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(1, 53).Payload(10).Bytes()}
	for n := range 3*size + 1 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			defer onOneProcessor(t)()
			for range n {
				run(t, d.programs[variant{}].ingress, f)
			}
			b := &d.table.batches[d.table.filling.epoch]
			if got, want := int(b.Waiting), n%size; got != want {
				t.Errorf("%d packets wait, want %d", got, want)
			}
			var got uint64
			if err := d.Drain(func(d *flow.Delta) { got += d.Packets }); err != nil {
				t.Fatal(err)
			}
			if got != uint64(n) || b.Waiting != 0 {
				t.Errorf("%d packets are told, want %d; %d still wait", got, n, b.Waiting)
			}
		})
	}
}
