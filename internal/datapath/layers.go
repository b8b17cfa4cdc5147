package datapath

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// layerSets is how many sets a layer of the flow table has at most. Older kernels
// accept values of up to 4 MiB (KMALLOC_MAX_SIZE).
const layerSets = 1 << 13

// shape is the size of the flow table.
type shape struct {
	parts uint32 // two epochs for each CPU
	sets  uint32 // of a part, in all layers together
	shift uint32 // a layer has 1 << shift sets for each part
}

func newShape(cpus, maxEntries uint32) shape {
	sets := max(1, (maxEntries+cpus*uint32(ways)-1)/(cpus*uint32(ways)))
	s := shape{parts: 2 * cpus, sets: sets}
	s.shift = min(log2(max(1, layerSets/s.parts)), uint32(bits.Len32(sets-1)))
	return s
}

// log2 is rounded down.
func log2(n uint32) uint32 { return uint32(bits.Len32(n)) - 1 }

// layerSets is how many sets of a part are in a layer.
func (s shape) layerSets() uint32 { return 1 << s.shift }

// layersFor is how many layers have so many sets of each part.
func (s shape) layersFor(sets uint32) int {
	return int((uint64(sets) + uint64(s.layerSets()) - 1) >> s.shift)
}

// layerBytes is the size of a layer.
func (s shape) layerBytes() int { return int(s.parts) << s.shift * setSize }

// setLayer sets the size of the layers that a map holds.
func (s shape) setLayer(flows *ebpf.MapSpec) *ebpf.MapSpec {
	flows.InnerMap = flows.InnerMap.Copy()
	flows.InnerMap.ValueSize = uint32(s.layerBytes())
	flows.InnerMap.Key, flows.InnerMap.Value = nil, nil // the type of one set
	return flows.InnerMap
}

// layer is a part of the kernel's flow table as memory of this process.
type layer struct {
	memory []byte
	slots  []slotSet
	extras []extraSet
}

// layers are those that the table has now. It grows and shrinks at its end.
type layers struct {
	shape
	outer *ebpf.Map
	inner *ebpf.MapSpec
	list  []layer
}

// grow adds layers until so many sets of each part can be used. The programs use
// them when the filling says so. Those that there is memory for are added in any case.
func (l *layers) grow(sets uint32) error {
	first, n := len(l.list), l.layersFor(min(sets, l.sets))
	var numbers, fds []uint32
	var err error
	for i := first; i < n; i++ {
		var m *ebpf.Map
		if m, err = l.open(); err != nil {
			err = fmt.Errorf("enlarging the flow table to %d layers of %d bytes: %w", i+1, l.layerBytes(), explain(err))
			break
		}
		defer m.Close() // the outer map and the mapping hold it
		numbers, fds = append(numbers, uint32(i)), append(fds, uint32(m.FD()))
	}
	return errors.Join(err, l.put(numbers, fds))
}

// open makes a layer and maps it.
func (l *layers) open() (*ebpf.Map, error) {
	m, err := ebpf.NewMap(l.inner)
	if err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(m.FD(), 0, l.layerBytes(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		m.Close()
		return nil, err
	}
	n := int(l.parts) << l.shift
	extras := unsafe.Pointer(&memory[n*int(unsafe.Sizeof(slotSet{}))])
	l.list = append(l.list, layer{
		memory: memory,
		slots:  unsafe.Slice((*slotSet)(unsafe.Pointer(&memory[0])), n),
		extras: unsafe.Slice((*extraSet)(extras), n),
	})
	return m, nil
}

// put gives the programs the layers that were added last: all at once, since the
// kernel waits for a grace period after each update.
func (l *layers) put(numbers, fds []uint32) error {
	if len(numbers) == 0 {
		return nil
	}
	_, err := l.outer.BatchUpdate(numbers, fds, nil)
	for i := 0; errors.Is(err, ebpf.ErrNotSupported) && i < len(numbers); i++ {
		if e := l.outer.Put(numbers[i], fds[i]); e != nil {
			err = e
		} else if i == len(numbers)-1 {
			err = nil
		}
	}
	if err != nil {
		for range numbers {
			l.drop(len(l.list) - 1)
		}
		return fmt.Errorf("enlarging the flow table: %w", err)
	}
	return nil
}

// shrinkBy is how many layers are removed at once at most: the kernel waits for a
// grace period after each.
const shrinkBy = 4

// shrink removes layers beyond so many sets of each part, which no program uses and
// which are empty.
func (l *layers) shrink(sets uint32) error {
	least := max(l.layersFor(sets), len(l.list)-shrinkBy)
	for n := len(l.list); n > least; n-- {
		if err := l.outer.Delete(uint32(n - 1)); err != nil {
			return fmt.Errorf("making the flow table smaller: %w", err)
		}
		l.drop(n - 1)
	}
	return nil
}

func (l *layers) drop(i int) {
	_ = unix.Munmap(l.list[i].memory) // nothing but our own mapping
	l.list = l.list[:i]
}

// each visits the first sets of a part.
func (l *layers) each(part uint32, sets int, visit func(slots []slotSet, extras []extraSet)) {
	first := int(part) << l.shift
	for i := 0; sets > 0; i++ {
		end := first + min(sets, 1<<l.shift)
		visit(l.list[i].slots[first:end], l.list[i].extras[first:end])
		sets -= 1 << l.shift
	}
}

func (l *layers) bytes() uint64 { return uint64(len(l.list) * l.layerBytes()) }

func (l *layers) close() {
	for n := len(l.list); n > 0; n-- {
		l.drop(n - 1)
	}
}
