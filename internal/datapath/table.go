package datapath

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
)

// table is the kernel's flow table as memory of this process: for each
// processor, the sets of two epochs, and the packets that wait to be counted.
type table struct {
	memory  [3][]byte // as mapped
	slots   []slotSet
	extras  []extraSet
	batches []packetBatch
	cpus    int
	sets    int // of one epoch and processor
	filling *filling
}

func openTable(all map[string]*ebpf.Map, cpus, sets int) (*table, error) {
	t := &table{cpus: cpus, sets: sets}
	for i, m := range []*ebpf.Map{all["flows"], all["flow_extras"], all["batches"]} {
		size := int(m.ValueSize()) * int(m.MaxEntries())
		memory, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.close()
			return nil, fmt.Errorf("mapping %d bytes of the flow table: %w", size, err)
		}
		t.memory[i] = memory
	}
	t.slots = unsafe.Slice((*slotSet)(unsafe.Pointer(&t.memory[0][0])), 2*cpus*sets)
	t.extras = unsafe.Slice((*extraSet)(unsafe.Pointer(&t.memory[1][0])), 2*cpus*sets)
	t.batches = unsafe.Slice((*packetBatch)(unsafe.Pointer(&t.memory[2][0])), 2*cpus)
	var err error
	if t.filling, err = openFilling(all[".data.control"], uint32(sets)); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// drain emits and frees every slot of an epoch that no program uses any more,
// and every packet that waited then. It returns how many slots there were.
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
				s.Packets, s.Meta = 0, freeMeta
				used++
				emit(&d)
			}
		}
		most = max(most, used-before)
		c.waiting(&t.batches[2*cpu+int(epoch)], emit)
	}
	t.filling.drained(epoch, most)
	return used
}

// waiting emits and frees the packets of a batch, each as a flow of its own.
func (c *clock) waiting(b *packetBatch, emit func(*flow.Delta)) {
	var d flow.Delta
	for i := range b.Packet[:min(int(b.Waiting), len(b.Packet))] {
		p := &b.Packet[i]
		x := extraOf(p)
		c.delta(&d, &p.Id, &x)
		emit(&d)
	}
	b.Waiting = 0
}

func (t *table) size() uint64 {
	return uint64(len(t.memory[0]) + len(t.memory[1]) + len(t.memory[2]))
}

func (t *table) close() {
	for i, m := range t.memory {
		if m != nil {
			_ = unix.Munmap(m) // nothing but our own mapping
			t.memory[i] = nil
		}
	}
	t.slots, t.extras, t.batches = nil, nil, nil
	if t.filling != nil {
		t.filling.close()
	}
}
