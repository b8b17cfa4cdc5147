package capture

import (
	"unsafe"

	"github.com/waymark-net/waymark/internal/flow"
)

// table holds what was counted in one interval. Its elements have no pointers,
// so that a million flows cost the garbage collector nothing, and never move.
type table struct {
	max    int
	index  map[flow.Key]int
	chunks [][]flow.Delta
	used   int

	// Packets of flows that did not fit, by what is kept of the key.
	rest map[flow.Key]*flow.Delta
}

// FlowBytes is what a flow takes of memory, in the table that is being filled and
// in the one that is drained: its element, and its place in the index.
const FlowBytes = uint64(2 * (unsafe.Sizeof(flow.Delta{}) + 2*(unsafe.Sizeof(flow.Key{})+16)))

// chunkLen is how many flows are allocated at once.
const chunkLen = 128

func newTable(max int) *table {
	return &table{max: max, index: map[flow.Key]int{}, rest: map[flow.Key]*flow.Delta{}}
}

// find returns the element of a key, a fresh one when there is none. When the
// table is full that is the one of the interface, direction and protocol.
func (t *table) find(k *flow.Key) *flow.Delta {
	if i, ok := t.index[*k]; ok {
		return t.at(i)
	}
	if t.used == t.max {
		return t.unattributed(k)
	}
	i := t.used
	if i/chunkLen == len(t.chunks) {
		t.chunks = append(t.chunks, make([]flow.Delta, chunkLen))
	}
	t.used++
	t.index[*k] = i
	d := t.at(i)
	*d = flow.Delta{Key: *k}
	return d
}

func (t *table) at(i int) *flow.Delta { return &t.chunks[i/chunkLen][i%chunkLen] }

func (t *table) unattributed(k *flow.Key) *flow.Delta {
	kept := flow.Key{Iface: k.Iface, Direction: k.Direction, IPv6: k.IPv6, Proto: k.Proto, Tunnel: k.Tunnel}
	d := t.rest[kept]
	if d == nil {
		d = &flow.Delta{Key: kept, Unattributed: true}
		t.rest[kept] = d
	}
	return d
}

// drain emits everything and empties the table, which keeps its memory.
func (t *table) drain(emit func(*flow.Delta)) {
	for i := range t.used {
		emit(t.at(i))
	}
	for _, d := range t.rest {
		emit(d)
	}
	clear(t.index)
	clear(t.rest)
	t.used = 0
}
