package datapath

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// leastSets of a processor are in use always, if there are so many: a megabyte, in
// which a thousand flows are nearly all at the first place looked at.
const leastSets = 1 << 12

// filling says where programs count: the epoch, and how many sets of it. As a rule
// there are as many as there were flows: with fewer, more flows would not be at
// the first place looked at; with more, they would be spread over more pages than
// a processor knows the addresses of, and a drain would read more. When the ring
// of evicted flows fills all the same, all sets are used at once: what stands in
// a set that is looked at no more is drained like the rest.
type filling struct {
	word   *uint64 // shared with the programs: sets in use << 32 | epoch
	memory []byte

	mu    sync.Mutex
	sets  uint32    // of one epoch and processor
	epoch uint32    // that programs fill
	inUse [2]uint32 // sets of each epoch that may hold flows
	flows [2]uint64 // that the fullest processor had in each epoch, when it ended
}

// openFilling maps the word, and starts with all sets of the first epoch.
func openFilling(m *ebpf.Map, sets uint32) (*filling, error) {
	memory, err := unix.Mmap(m.FD(), 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping what controls the flow table: %w", err)
	}
	f := &filling{word: (*uint64)(unsafe.Pointer(&memory[0])), memory: memory, sets: sets}
	f.flows = [2]uint64{uint64(sets), uint64(sets)} // for all that is known
	f.fill(0, sets)
	return f, nil
}

func (f *filling) fill(epoch, inUse uint32) {
	f.epoch, f.inUse[epoch] = epoch, max(f.inUse[epoch], inUse)
	atomic.StoreUint64(f.word, uint64(inUse)<<32|uint64(epoch))
}

// turn lets programs fill the other epoch, which was drained; it returns the one
// that they filled.
func (f *filling) turn() (old uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old = f.epoch
	f.fill(1-old, f.needed())
	return old
}

// needed is the number of sets for the flows of the last two epochs.
func (f *filling) needed() uint32 {
	return uint32(min(uint64(f.sets), max(leastSets, f.flows[0], f.flows[1])))
}

// grow uses all sets from now on.
func (f *filling) grow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.word == nil { // closed
		return
	}
	f.fill(f.epoch, f.sets)
	f.flows[f.epoch] = uint64(f.sets)
}

// drained notes that an epoch is empty, and how many flows the fullest processor
// had in it.
func (f *filling) drained(epoch uint32, flows uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flows[epoch], f.inUse[epoch] = flows, 0
}

// used is how many sets of an epoch may hold flows.
func (f *filling) used(epoch uint32) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int(f.inUse[epoch])
}

func (f *filling) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.word = nil
	_ = unix.Munmap(f.memory)
}
