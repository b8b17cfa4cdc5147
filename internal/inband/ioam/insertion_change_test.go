package ioam

import (
	"sync/atomic"
	"testing"

	wire "github.com/waymark-net/waymark/wire/ioam"
)

// insertionChanges replaces the node while packets leave: each has the options of the old node or of the new
// one, as a whole, and none is left out.
func (h *host) insertionChanges(t *testing.T) {
	nodes := [2]Node{}
	types := [2]wire.TraceType{wire.HopLimitNodeID | wire.NamespaceData | wire.NamespaceDataWide, wire.HopLimitNodeIDWide | wire.TransitDelay}
	for i, space := range []uint16{spaceA, spaceB} {
		in := insertionTo("::/0")
		for range 4 {
			tr, err := wire.NewTrace(space, types[i], 4*types[i].NodeLen()*(1+i))
			if err != nil {
				t.Fatal(err)
			}
			in.Options = append(in.Options, tr)
		}
		n := inserting(t, in)
		n.ID, n.WideID = uint32(1+i), uint64(0x100+i)
		n.Namespaces[i].Data = uint32(0xda7a + i)
		nodes[i] = n
	}
	if err := h.node.Apply(nodes[0]); err != nil {
		t.Fatal(err)
	}
	before, err := h.node.InsertionCounts()
	if err != nil {
		t.Fatal(err)
	}
	done, ended := atomic.Bool{}, make(chan error, 1)
	go func() {
		defer done.Store(true)
		for i := range 60 {
			if err := h.node.Apply(nodes[(1+i)%2]); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	var seen [2]int
	packets := uint64(0)
	h.inside(t, func() {
		frame := datagram(hostB, 1, 2)
		for !done.Load() {
			out, verdict := h.insert(t, frame, 0, 0)
			if verdict != written {
				t.Fatalf("verdict %d", verdict)
			}
			packets++
			size := 8 * (int(out[gapAt+1]) + 1)
			header := out[gapAt : gapAt+size]
			which := 0
			if out[gapAt+8] == 0xff { // namespace of the first option
				which = 1
			}
			seen[which]++
			r := reading{t: t, n: &nodes[which]}
			r.header(blocks[0], header)
		}
	})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if seen[0] == 0 || seen[1] == 0 {
		t.Errorf("packets with the options of the nodes: %v", seen)
	}
	after, err := h.node.InsertionCounts()
	if err != nil {
		t.Fatal(err)
	}
	if n := after[0].Inserted - before[0].Inserted; n != packets {
		t.Errorf("%d packets counted, want %d", n, packets)
	}
}

// A node that cannot be changes nothing.
func (h *host) insertionRefused(t *testing.T) {
	good := inserting(t, insertionTo("::/0", &wire.E2E{Namespace: spaceA, Type: wire.E2EFraction}))
	if err := h.node.Apply(good); err != nil {
		t.Fatal(err)
	}
	long, err := wire.NewTrace(spaceA, wire.TransitDelay, wire.MaxTraceSpace)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]Insertion{
		{insertionTo("::/0", long, long, long, long, long)},
		{insertionTo("::/0", long), insertionTo("::/0", long)},
		make([]Insertion, MaxInsertions+1),
	} {
		if err := h.node.Apply(inserting(t, bad...)); err == nil {
			t.Error("accepted")
		}
		h.inside(t, func() {
			if _, verdict := h.insert(t, datagram(hostB, 1, 2), 2, 0); verdict != written {
				t.Errorf("verdict %d", verdict)
			}
		})
	}
}
