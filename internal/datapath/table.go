package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
)

// table is the kernel's flow table as memory of this process: a part for each CPU
// and epoch, and the packets that wait to be counted.
type table struct {
	mapped  [][]byte // memory of batches, and of epoch
	batches []packetBatch
	epoch   *uint32 // that programs fill
	least   uint32  // sets of a part that are always in use

	mu     sync.Mutex // guards what follows; a drain alone uses the parts of an old epoch
	chunks chunkMap
	parts  []part // two epochs for each CPU; nil: closed
	small  bool   // there was no memory for more chunks
	log    *slog.Logger
}

func openTable(all map[string]*ebpf.Map, inner *ebpf.MapSpec, s shape, whole bool, log *slog.Logger) (_ *table, err error) {
	t := &table{log: log, chunks: chunkMap{shape: s, outer: all["flows"], inner: inner}, least: s.setsFor(0)}
	if whole {
		t.least = s.sets
	}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	m := all["batches"]
	memory, err := t.mmap(m, int(m.ValueSize()*m.MaxEntries()))
	if err != nil {
		return nil, fmt.Errorf("mapping the waiting packets: %w", err)
	}
	t.batches = unsafe.Slice((*packetBatch)(unsafe.Pointer(&memory[0])), m.MaxEntries())
	if memory, err = t.mmap(all[".data.control"], unix.Getpagesize()); err != nil {
		return nil, fmt.Errorf("mapping what controls the flow table: %w", err)
	}
	t.epoch = (*uint32)(unsafe.Pointer(&memory[0]))
	t.parts = make([]part, s.parts)
	want := make([]uint32, s.parts)
	for i := range t.parts {
		t.parts[i] = part{batch: &t.batches[i], first: s.firstChunk(i)}
		t.batches[i].FirstChunk, want[i] = t.parts[i].first, t.least
	}
	return t, t.resize(want)
}

func (t *table) mmap(m *ebpf.Map, size int) ([]byte, error) {
	memory, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		t.mapped = append(t.mapped, memory)
	}
	return memory, err
}

// resize adds the chunks that parts want, and lets programs use so many sets of
// each; 0: as before. Parts that got no memory use what they have.
func (t *table) resize(want []uint32) error {
	var numbers []uint32
	var owners []*part
	for i, sets := range want {
		p := &t.parts[i]
		for n := len(p.chunks); n < t.chunks.chunks(sets); n++ {
			numbers, owners = append(numbers, p.first+uint32(n)), append(owners, p)
		}
	}
	added, err := t.chunks.add(numbers)
	for i, c := range added {
		owners[i].chunks = append(owners[i].chunks, c)
	}
	for i, sets := range want {
		if p := &t.parts[i]; sets > 0 {
			p.use(min(sets, uint32(len(p.chunks))<<t.chunks.shift))
		}
	}
	if err != nil {
		return fmt.Errorf("enlarging the flow table by %d chunks of %d bytes: %w", len(numbers), t.chunks.chunkBytes(), explain(err))
	}
	return nil
}

// tryResize is resize for a running table: where there is no memory, flows are
// evicted, and no count is lost.
func (t *table) tryResize(want []uint32) {
	err := t.resize(want)
	if err != nil && !t.small {
		t.log.Warn("flow table cannot grow: flows are evicted early", "error", err)
	}
	t.small = err != nil
}

// needed is the number of sets for the flows that the CPU of a part had in the last
// two epochs.
func (t *table) needed(i int) uint32 {
	return max(t.least, t.chunks.setsFor(max(t.parts[i&^1].flows, t.parts[i|1].flows)))
}

// turn lets programs fill the other epoch, which was drained, with as many sets as
// it needs.
func (t *table) turn() (old uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old = *t.epoch
	want := make([]uint32, len(t.parts))
	for i := 1 - int(old); i < len(want); i += 2 {
		want[i] = t.needed(i)
	}
	t.tryResize(want)
	atomic.StoreUint32(t.epoch, 1-old)
	return old
}

// grow enlarges the parts that evict flows.
func (t *table) grow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.parts == nil {
		return
	}
	want := make([]uint32, len(t.parts))
	more := false
	for i := int(*t.epoch); i < len(want); i += 2 {
		if sets := t.parts[i].wants(t.chunks.shape); sets > t.parts[i].batch.Sets {
			want[i], more = sets, true
		}
	}
	if more {
		t.tryResize(want)
	}
}

// settle gives chunks back that an epoch, which was drained and is in use by no
// program, has not needed for some time.
func (t *table) settle(epoch uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for i := int(epoch); i < len(t.parts); i += 2 {
		p := &t.parts[i]
		n := p.excess(t.chunks.chunks(max(p.sets, t.needed(i))))
		if n == 0 {
			continue
		}
		left := len(p.chunks) - n
		numbers := make([]uint32, n)
		for j := range numbers {
			numbers[j] = p.first + uint32(left+j)
		}
		if err := t.chunks.remove(numbers); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, c := range p.chunks[left:] {
			c.close()
		}
		p.chunks = p.chunks[:left]
	}
	return errors.Join(errs...)
}

// drain emits and frees every slot of an epoch that no program uses any more,
// and every packet that waited then. It returns how many slots there were.
func (t *table) drain(epoch uint32, c *clock, emit func(*flow.Delta)) (used uint64) {
	for i := int(epoch); i < len(t.parts); i += 2 {
		p := &t.parts[i]
		flows := p.drain(t.chunks.chunkSets(), c, emit)
		c.waiting(p.batch, emit)
		p.drained(flows)
		used += flows
	}
	return used
}

// drain emits and frees the slots of a part.
func (p *part) drain(chunkSets uint32, c *clock, emit func(*flow.Delta)) (used uint64) {
	var d flow.Delta
	left := p.sets
	for _, piece := range p.chunks {
		n := min(left, chunkSets)
		left -= n
		slots, extras := piece.slots[:n], piece.extras[:n]
		for i := range slots {
			set := &slots[i]
			for w := range set.Way {
				s := &set.Way[w]
				if s.Packets == 0 {
					continue
				}
				c.emit(&d, s, &extras[i].Way[w], false, emit)
				s.Packets, s.Meta = 0, freeMeta
				used++
			}
		}
	}
	return used
}

// waiting emits and frees the packets of a batch, each as a flow of its own.
func (c *clock) waiting(b *packetBatch, emit func(*flow.Delta)) {
	var d flow.Delta
	for i := range b.Packet[:min(int(b.Waiting), len(b.Packet))] {
		p := &b.Packet[i]
		x := extraOf(p)
		c.emit(&d, &p.Id, &x, false, emit)
	}
	b.Waiting = 0
}

// size is what the table takes now, in bytes.
func (t *table) size() (n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.parts {
		n += uint64(len(t.parts[i].chunks) * t.chunks.chunkBytes())
	}
	return n + uint64(len(t.batches))*uint64(unsafe.Sizeof(packetBatch{}))
}

func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.parts {
		for _, c := range p.chunks {
			c.close()
		}
	}
	for _, memory := range t.mapped {
		_ = unix.Munmap(memory)
	}
	t.parts, t.batches, t.mapped, t.epoch = nil, nil, nil, nil
}
