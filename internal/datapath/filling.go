package datapath

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// filling says where programs count: the epoch, and how many sets of it. As a rule
// there are as many as there were flows: with fewer, more flows would not be at
// the first place looked at; with more, they would be spread over more pages than
// a processor knows the addresses of, and a drain would read more. When the ring
// of evicted flows fills all the same, more sets are used at once: what stands in
// a set that is looked at no more is drained like the rest.
type filling struct {
	word   *uint64 // shared with the programs: sets in use << 32 | epoch
	memory []byte

	mu    sync.Mutex
	shape shape
	whole bool      // all sets are used
	epoch uint32    // that programs fill
	inUse [2]uint32 // sets of each epoch that may hold flows
	flows [2]uint64 // that the fullest processor had in each epoch, when it ended
	grown [2]bool   // flows were evicted in each epoch, and more sets used
}

// openFilling maps the word, and starts with the least of the first epoch.
func openFilling(m *ebpf.Map, s shape, whole bool) (*filling, error) {
	memory, err := unix.Mmap(m.FD(), 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping what controls the flow table: %w", err)
	}
	f := &filling{word: (*uint64)(unsafe.Pointer(&memory[0])), memory: memory, shape: s, whole: whole}
	f.fill(0, f.least())
	return f, nil
}

// least is the number of sets that are always in use: those of the first layer, or all.
func (f *filling) least() uint32 {
	if f.whole {
		return f.shape.sets
	}
	return min(f.shape.sets, f.shape.layerSets())
}

func (f *filling) fill(epoch, inUse uint32) {
	f.epoch, f.inUse[epoch] = epoch, max(f.inUse[epoch], inUse)
	atomic.StoreUint64(f.word, uint64(inUse)<<32|uint64(epoch))
}

// turn lets programs fill the other epoch, which was drained, with what it needs of
// the sets that are available; it returns the one that they filled.
func (f *filling) turn(available uint32) (old uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old = f.epoch
	f.fill(1-old, min(available, f.neededLocked()))
	return old
}

// needed is the number of sets for the flows of the last two epochs.
func (f *filling) needed() uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.neededLocked()
}

func (f *filling) neededLocked() uint32 {
	return uint32(min(uint64(f.shape.sets), max(uint64(f.least()), f.flows[0], f.flows[1])))
}

// grow uses so many sets from now on.
func (f *filling) grow(sets uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.word == nil { // closed
		return
	}
	f.fill(f.epoch, max(sets, f.inUse[f.epoch]))
	f.grown[f.epoch] = true
}

// drained notes that an epoch is empty, and how many flows the fullest processor
// had in it.
func (f *filling) drained(epoch uint32, flows uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.grown[epoch] { // evicted flows had no slot in the end, but need one
		flows = max(flows, uint64(f.inUse[epoch]))
	}
	f.flows[epoch], f.inUse[epoch], f.grown[epoch] = flows, 0, false
}

// used is how many sets of an epoch may hold flows.
func (f *filling) used(epoch uint32) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int(f.inUse[epoch])
}

// current is the epoch that programs fill.
func (f *filling) current() uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch
}

func (f *filling) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.word = nil
	_ = unix.Munmap(f.memory)
}
