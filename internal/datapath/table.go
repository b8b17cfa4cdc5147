package datapath

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
)

// table is the kernel's flow table as memory of this process: for each
// processor, the sets of two epochs.
type table struct {
	memory  [2][]byte // as mapped: flows, extras
	slots   []slotSet
	extras  []extraSet
	cpus    int
	sets    int // of one epoch and processor
	filling *filling
}

func openTable(all map[string]*ebpf.Map, cpus, sets int) (*table, error) {
	t := &table{cpus: cpus, sets: sets}
	for i, m := range []*ebpf.Map{all["flows"], all["flow_extras"]} {
		size := int(m.ValueSize()) * int(m.MaxEntries())
		memory, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.close()
			return nil, fmt.Errorf("mapping %d octets of the flow table: %w", size, err)
		}
		t.memory[i] = memory
	}
	t.slots = unsafe.Slice((*slotSet)(unsafe.Pointer(&t.memory[0][0])), 2*cpus*sets)
	t.extras = unsafe.Slice((*extraSet)(unsafe.Pointer(&t.memory[1][0])), 2*cpus*sets)
	var err error
	if t.filling, err = openFilling(all[".data.control"], uint32(sets)); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// drain emits and frees every slot of an epoch that no program uses any more.
// It returns how many there were.
func (t *table) drain(epoch uint32, c *clock, emit func(*flow.Delta)) (used uint64) {
	var d flow.Delta
	var most uint64
	inUse := t.filling.used(epoch)
	for cpu := range t.cpus {
		before := used
		first := (2*cpu + int(epoch)) * t.sets
		for i := first; i < first+inUse; i++ {
			set := &t.slots[i]
			for w := range set.Way {
				s := &set.Way[w]
				if s.Packets == 0 {
					continue
				}
				c.delta(&d, s, &t.extras[i].Way[w])
				s.Packets, s.Meta, s.Proto = 0, 0, 0 // free, and no packet's (bpf/hit.h)
				used++
				emit(&d)
			}
		}
		most = max(most, used-before)
	}
	t.filling.drained(epoch, most)
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
	t.slots, t.extras = nil, nil
	if t.filling != nil {
		t.filling.close()
	}
}
