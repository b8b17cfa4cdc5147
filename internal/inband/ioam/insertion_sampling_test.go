package ioam

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	wire "github.com/waymark-net/waymark/wire/ioam"
)

// Sequence numbers count packets of a pair of addresses, or of a flow, and go on when the configuration
// changes, unless the insertion is another one.
func (h *host) insertionSequences(t *testing.T) {
	e2e := &wire.E2E{Namespace: spaceA, Type: wire.E2ESequence64}
	dex := &wire.DEX{Namespace: spaceA, Type: 0x800000, Extension: wire.DEXFlowID | wire.DEXSequence}
	in := insertionTo("2001:db8::/32", e2e, dex)
	apply := func(list ...Insertion) {
		if err := h.node.Apply(inserting(t, list...)); err != nil {
			t.Fatal(err)
		}
	}
	flows := map[uint32]bool{}
	pair := func(frame []byte, want uint64) {
		t.Helper()
		out, _ := h.insert(t, frame, 2, 0)
		if got := binary.BigEndian.Uint64(out[gapAt+12:]); got != want {
			t.Errorf("number %d of the pair, want %d", got, want)
		}
	}
	flow := func(frame []byte, want uint32) {
		t.Helper()
		out, _ := h.insert(t, frame, 0, 0)
		flows[binary.BigEndian.Uint32(out[gapAt+16:])] = true
		if got := binary.BigEndian.Uint32(out[gapAt+20:]); got != want {
			t.Errorf("number %d of the flow, want %d", got, want)
		}
	}
	var ctx [48]uint32
	a, b, other := datagram(hostB, 1, 2), datagram(hostB, 3, 4), datagram("2001:db8:c::3", 1, 2)
	h.inside(t, func() {
		apply(in)
		pair(a, 0)
		pair(b, 1)
		pair(other, 0)
		before, _ := h.node.InsertionCounts()
		ctx[10], ctx[41], ctx[44] = uint32(h.veth.From), 3, 400 // gso_segs, gso_size
		if _, verdict := h.run(t, h.program(t, "test_insert"), ctx, other); verdict != written {
			t.Errorf("verdict %d of a burst", verdict)
		}
		after, err := h.node.InsertionCounts()
		if err != nil || after[0].Inserted-before[0].Inserted != 3 || after[0].Chosen-before[0].Chosen != 1 {
			t.Errorf("a burst of 3: %+v, %+v before, %v", after, before, err)
		}
		pair(other, 2) // a burst has one number
		flow(a, 0)
		flow(b, 0)
		flow(a, 1)
		apply(insertionTo("2001:db8:1::/48", e2e), in) // others come and go
		pair(a, 2)
		flow(b, 1)
		in.Take, in.Options = 1, []wire.Body{e2e, dex, &wire.POT{Namespace: spaceA}}
		apply(in)
		pair(a, 3)
		apply()
		apply(in)
		pair(a, 0) // another insertion
	})
	if len(flows) != 2 {
		t.Errorf("flow ids %v", flows)
	}
}

// pinned runs f on one processor.
func pinned(t testing.TB, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for cpu := range len(before) * 64 {
		if before.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Error(err)
		}
	}()
	f()
}

// k of n packets are exactly that, down to one in a million.
func (h *host) insertionFrequency(t *testing.T) {
	run := func(frame []byte, repeat uint32) {
		h.setForm(t, 2)
		var ctx [48]uint32
		ctx[10] = uint32(h.veth.From)
		opts := ebpf.RunOptions{Data: frame, Context: ctx, Repeat: repeat}
		if _, err := h.program(t, "test_insert").Run(&opts); err != nil {
			t.Fatal(err)
		}
	}
	h.inside(t, func() {
		pinned(t, func() {
			for _, c := range []struct{ take, of, packets uint32 }{
				{1, 1, 1000}, {1, 2, 1000}, {3, 7, 7000}, {99, 100, 10000}, {1, 10000, 100000}, {1, MaxOf, 2 * MaxOf},
			} {
				in := insertionTo("::/0", &wire.E2E{Namespace: spaceA, Type: wire.E2ESequence32})
				in.Take, in.Of = c.take, c.of
				n := inserting(t, in)
				if err := h.node.Apply(n); err != nil {
					t.Fatal(err)
				}
				before, err := h.node.InsertionCounts()
				if err != nil {
					t.Fatal(err)
				}
				run(datagram(hostB, 1, 2), c.packets)
				after, err := h.node.InsertionCounts()
				if err != nil {
					t.Fatal(err)
				}
				want := uint64(c.packets / c.of * c.take)
				named, chosen := after[0].Named-before[0].Named, after[0].Chosen-before[0].Chosen
				if named != uint64(c.packets) || chosen != want || after[0].Inserted-before[0].Inserted != want {
					t.Errorf("%d of %d: %d of %d packets, want %d", c.take, c.of, chosen, named, want)
				}
			}
		})
	})
}

// Flows that take turns are sampled alike: a counter alone would always choose the same one.
func (h *host) insertionSamplesAllFlows(t *testing.T) {
	const flows, rounds = 4, 4000
	in := insertionTo("::/0", &wire.E2E{Namespace: spaceA, Type: wire.E2ESequence32})
	in.Take, in.Of = 1, flows
	if err := h.node.Apply(inserting(t, in)); err != nil {
		t.Fatal(err)
	}
	var frames [flows][]byte
	var chosen [flows]int
	for i := range frames {
		frames[i] = datagram(hostB, uint16(1000+i), 2000)
	}
	h.inside(t, func() {
		for range rounds {
			for i, frame := range frames {
				if _, verdict := h.insert(t, frame, 2, 0); verdict == written {
					chosen[i]++
				}
			}
		}
	})
	for _, n := range chosen { // 1000 each, standard deviation 27
		if n < rounds/flows-140 || n > rounds/flows+140 {
			t.Errorf("chosen %v, want about %d each", chosen, rounds/flows)
			break
		}
	}
}
