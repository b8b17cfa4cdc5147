package datapath

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
)

// table is the kernel's flow table as memory of this process: two epochs, each
// with the sets of all processors.
type table struct {
	memory [2][]byte // as mapped: flows, extras
	sets   []slotSet
	extras []extraSet
	half   int // sets of one epoch
}

func openTable(flows, extras *ebpf.Map, half int) (*table, error) {
	t := &table{half: half}
	for i, m := range []*ebpf.Map{flows, extras} {
		size := int(m.ValueSize()) * int(m.MaxEntries())
		memory, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.close()
			return nil, fmt.Errorf("mapping %d octets of the flow table: %w", size, err)
		}
		t.memory[i] = memory
	}
	t.sets = unsafe.Slice((*slotSet)(unsafe.Pointer(&t.memory[0][0])), 2*half)
	t.extras = unsafe.Slice((*extraSet)(unsafe.Pointer(&t.memory[1][0])), 2*half)
	return t, nil
}

// drain emits and frees every slot of an epoch that no program uses any more.
// It returns how many there were.
func (t *table) drain(epoch uint32, c *clock, emit func(*flow.Delta)) (used uint64) {
	var d flow.Delta
	base := int(epoch) * t.half
	for i := base; i < base+t.half; i++ {
		set := &t.sets[i]
		for w := range set.Way {
			s := &set.Way[w]
			if s.Packets == 0 {
				continue
			}
			c.delta(&d, s, &t.extras[i].Way[w])
			s.Packets = 0
			used++
			emit(&d)
		}
	}
	return used
}

func (t *table) size() uint64 {
	return uint64(len(t.memory[0]) + len(t.memory[1]))
}

func (t *table) close() {
	for i, m := range t.memory {
		if m != nil {
			_ = unix.Munmap(m) // nothing but our own mapping
			t.memory[i] = nil
		}
	}
	t.sets, t.extras = nil, nil
}
