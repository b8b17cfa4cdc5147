package datapath

import (
	"fmt"
	"log/slog"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
)

// table is the kernel's flow table as memory of this process: for each
// processor, the sets of two epochs, and the packets that wait to be counted.
type table struct {
	memory  []byte // of the batches
	batches []packetBatch
	filling *filling

	mu     sync.Mutex // guards what follows; filling's comes after it
	layers layers
	quiet  int  // drains in a row after which fewer layers would do
	small  bool // there was no memory for more layers
	log    *slog.Logger
}

func openTable(all map[string]*ebpf.Map, inner *ebpf.MapSpec, s shape, whole bool, log *slog.Logger) (*table, error) {
	t := &table{log: log, layers: layers{shape: s, outer: all["flows"], inner: inner}}
	m := all["batches"]
	size := int(m.ValueSize()) * int(m.MaxEntries())
	var err error
	if t.memory, err = unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mapping %d bytes of waiting packets: %w", size, err)
	}
	t.batches = unsafe.Slice((*packetBatch)(unsafe.Pointer(&t.memory[0])), m.MaxEntries())
	first := s.layerSets()
	if whole {
		first = s.sets
	}
	if err := t.layers.grow(first); err != nil {
		t.close()
		return nil, err
	}
	if t.filling, err = openFilling(all[".data.control"], s, whole); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// turn lets programs fill the other epoch, with as many sets as it needs.
func (t *table) turn() (old uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.growLocked(t.filling.needed())
	return t.filling.turn(t.available())
}

// growLocked adds layers. Where there is no memory for them the table stays as it
// is: flows are evicted, and no count is lost.
func (t *table) growLocked(sets uint32) {
	err := t.layers.grow(sets)
	if err != nil && !t.small {
		t.log.Warn("flow table cannot grow: flows are evicted early", "error", err)
	}
	t.small = err != nil
}

// available is how many sets of a part the layers have.
func (t *table) available() uint32 {
	return min(t.layers.sets, uint32(len(t.layers.list))<<t.layers.shift)
}

// growth is how many times as many sets are used when the ring of evicted flows
// fills.
const growth = 8

// grow uses more sets from now on.
func (t *table) grow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.layers.list) == 0 { // closed
		return
	}
	now := t.filling.used(t.filling.current())
	t.growLocked(uint32(min(uint64(t.layers.sets), growth*uint64(now))))
	t.filling.grow(min(t.available(), growth*uint32(now)))
}

// quietDrains is how many drains in a row must need half of the layers at most
// until the others are given back.
const quietDrains = 6

// settle gives layers back. Called when an epoch was drained, and no program uses
// it any more.
func (t *table) settle() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	need := max(t.filling.needed(), uint32(t.filling.used(0)), uint32(t.filling.used(1)))
	if few := t.layers.layersFor(need); few == len(t.layers.list) || t.quiet < quietDrains && 2*few > len(t.layers.list) {
		t.quiet = 0
		return nil
	}
	if t.quiet++; t.quiet < quietDrains {
		return nil
	}
	return t.layers.shrink(need)
}

// drain emits and frees every slot of an epoch that no program uses any more,
// and every packet that waited then. It returns how many slots there were.
func (t *table) drain(epoch uint32, c *clock, emit func(*flow.Delta)) (used uint64) {
	var d flow.Delta
	var most uint64
	inUse := t.filling.used(epoch)
	for part := epoch; part < t.layers.parts; part += 2 {
		before := used
		t.mu.Lock() // what the ring's reader adds is in no use for this epoch
		list := t.layers
		t.mu.Unlock()
		list.each(part, inUse, func(slots []slotSet, extras []extraSet) {
			for i := range slots {
				set := &slots[i]
				for w := range set.Way {
					s := &set.Way[w]
					if s.Packets == 0 {
						continue
					}
					c.delta(&d, s, &extras[i].Way[w])
					s.Packets, s.Meta = 0, freeMeta
					used++
					emit(&d)
				}
			}
		})
		most = max(most, used-before)
		c.waiting(&t.batches[part], emit)
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

// size is what the table takes now, in bytes.
func (t *table) size() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.layers.bytes() + uint64(len(t.memory))
}

func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.layers.close()
	if t.memory != nil {
		_ = unix.Munmap(t.memory)
		t.memory, t.batches = nil, nil
	}
	if t.filling != nil {
		t.filling.close()
	}
}
