package datapath

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// A part of the flow table has about chunksPerPart chunks at its full size, each
// of at least leastChunk sets, and of at most mostChunk: older kernels accept
// values of up to 4 MiB (KMALLOC_MAX_SIZE).
const (
	chunksPerPart = 64
	leastChunk    = 1 << 7
	mostChunk     = 1 << 11
)

// shape is the size of the flow table.
type shape struct {
	parts uint32 // two epochs for each CPU
	sets  uint32 // of a part, at most
	shift uint32 // a chunk has 1 << shift sets
}

func newShape(cpus, maxEntries uint32) shape {
	sets := max(1, (maxEntries+cpus*uint32(ways)-1)/(cpus*uint32(ways)))
	chunk := min(max(sets/chunksPerPart, leastChunk), mostChunk, sets)
	return shape{parts: 2 * cpus, sets: sets, shift: uint32(bits.Len32(chunk - 1))}
}

func (s shape) chunkSets() uint32 { return 1 << s.shift }

// chunks is how many hold so many sets.
func (s shape) chunks(sets uint32) int { return int((sets + s.chunkSets() - 1) >> s.shift) }

// chunkBytes is the size of a chunk.
func (s shape) chunkBytes() int { return setSize << s.shift }

// firstChunk is the number of the first chunk of a part.
func (s shape) firstChunk(part int) uint32 { return uint32(part * s.chunks(s.sets)) }

// setChunk sets the size of the chunks that a map holds.
func (s shape) setChunk(flows *ebpf.MapSpec) *ebpf.MapSpec {
	flows.InnerMap = flows.InnerMap.Copy()
	flows.InnerMap.ValueSize = uint32(s.chunkBytes())
	flows.InnerMap.Key, flows.InnerMap.Value = nil, nil // the type of one set
	return flows.InnerMap
}

// chunk is a piece of the kernel's flow table as memory of this process.
type chunk struct {
	memory []byte
	slots  []slotSet
	extras []extraSet
}

func mapChunk(m *ebpf.Map, s shape) (chunk, error) {
	memory, err := unix.Mmap(m.FD(), 0, s.chunkBytes(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return chunk{}, err
	}
	n := s.chunkSets()
	extras := unsafe.Pointer(&memory[uintptr(n)*unsafe.Sizeof(slotSet{})])
	return chunk{
		memory: memory,
		slots:  unsafe.Slice((*slotSet)(unsafe.Pointer(&memory[0])), n),
		extras: unsafe.Slice((*extraSet)(extras), n),
	}, nil
}

func (c chunk) close() { _ = unix.Munmap(c.memory) } // nothing but our own mapping

// chunkMap is the map that the programs find chunks in.
type chunkMap struct {
	shape
	outer *ebpf.Map
	inner *ebpf.MapSpec // of a chunk
}

const (
	// atOnce bounds the descriptors that are open while chunks are added.
	atOnce = 64
	// waiting is how many system calls wait for the same grace period: the kernel
	// waits after each update of a map of maps, before Linux 6.8 after each element.
	waiting = 16
)

// add gives the programs chunks of these numbers. Those that there is memory for
// are added in any case, in order.
func (m *chunkMap) add(numbers []uint32) (added []chunk, err error) {
	for len(numbers) > 0 && err == nil {
		n := min(len(numbers), atOnce)
		var some []chunk
		some, err = m.addSome(numbers[:n])
		added, numbers = append(added, some...), numbers[n:]
	}
	return added, err
}

func (m *chunkMap) addSome(numbers []uint32) (added []chunk, err error) {
	var fds []uint32
	for range numbers {
		inner, e := ebpf.NewMap(m.inner)
		if e != nil {
			err = e
			break
		}
		defer inner.Close() // the outer map and the mapping hold it
		c, e := mapChunk(inner, m.shape)
		if e != nil {
			err = e
			break
		}
		added, fds = append(added, c), append(fds, uint32(inner.FD()))
	}
	if e := m.put(numbers[:len(fds)], fds); e != nil {
		for _, c := range added {
			c.close()
		}
		return nil, e
	}
	return added, err
}

func (m *chunkMap) put(numbers, fds []uint32) error {
	var group errgroup.Group
	share := (len(fds) + waiting - 1) / waiting
	for len(fds) > 0 {
		n := min(share, len(fds))
		some, values := numbers[:n], fds[:n]
		group.Go(func() error { return m.putSome(some, values) })
		numbers, fds = numbers[n:], fds[n:]
	}
	return group.Wait()
}

func (m *chunkMap) putSome(numbers, fds []uint32) error {
	_, err := m.outer.BatchUpdate(numbers, fds, nil)
	if !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	for i := range numbers {
		if err := m.outer.Put(numbers[i], fds[i]); err != nil {
			return err
		}
	}
	return nil
}

// remove takes chunks that no program uses from the programs.
func (m *chunkMap) remove(numbers []uint32) error {
	var group errgroup.Group
	group.SetLimit(waiting)
	for _, n := range numbers {
		group.Go(func() error {
			if err := m.outer.Delete(n); err != nil {
				return fmt.Errorf("removing chunk %d of the flow table: %w", n, err)
			}
			return nil
		})
	}
	return group.Wait()
}
