package pdm

import (
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
)

// places are states that the programs find without a call, and which flow has which place: see bpf/pdm/near.h.
// They are mapped while they are read, and few at a time: what is mapped counts as the agent's memory.
type places struct {
	near, words *ebpf.Map

	window datapath.Mapped[abiPdmNear] // placesMapped of them
	first  uint32                      // number of the first of these
	index  datapath.Mapped[uint64]     // and the numbers of free places behind it
}

const placesMapped = 8192

// at is a place, until the next one is asked for.
func (p *places) at(number uint32) (*abiPdmNear, error) {
	first := number / placesMapped * placesMapped
	if p.window.Values == nil || first != p.first {
		p.window.Close()
		if err := p.window.OpenPart(p.near, int(first), int(min(placesMapped, p.near.MaxEntries()-first))); err != nil {
			return nil, err
		}
		p.first = first
	}
	return &p.window.Values[number-first], nil
}

// take reads and deletes a state in one step. The programs give its place to other flows from then on.
func (p *places) take(number uint32, owner int64) (*abiPdmState, error) {
	if p.index.Values == nil {
		if err := p.index.OpenPart(p.words, int(abiPdmWordWORD_INDEX), int(p.words.MaxEntries()-uint32(abiPdmWordWORD_INDEX))); err != nil {
			return nil, err
		}
	}
	place, err := p.at(number)
	if err != nil {
		return nil, err
	}
	if !atomic.CompareAndSwapInt64(&place.Owner, owner, nearBusy) {
		return nil, ebpf.ErrKeyNotExist
	}
	s := place.State
	if place.Entry < uint64(entriesOf(p.near.MaxEntries())) {
		atomic.StoreUint64(&p.index.Values[place.Entry], 0)
	}
	atomic.StoreInt64(&place.Owner, nearFree)
	p.free(number)
	return &s, nil
}

// free lets the programs take a place.
func (p *places) free(number uint32) {
	behind := p.index.Values[entriesOf(p.near.MaxEntries()):]
	freed, numbers := &behind[0], behind[1:]
	n := atomic.LoadUint64(freed)
	atomic.StoreUint64(&numbers[n%uint64(len(numbers))], uint64(number))
	atomic.StoreUint64(freed, n+1)
}

func (p *places) close() {
	p.window.Close()
	p.index.Close()
}

// entriesOf is how many entries the index of so many places has; wordsOf, how many pdm_words has.
func entriesOf(places uint32) uint32 { return places * uint32(abiPdmNearsNEAR_ENTRIES) }

func wordsOf(places uint32) uint32 {
	return uint32(abiPdmWordWORD_INDEX) + entriesOf(places) + 1 + places
}

// Of a place's owner, as in bpf/pdm/abi.h.
const (
	nearBusy = -1
	nearFree = 0
)
