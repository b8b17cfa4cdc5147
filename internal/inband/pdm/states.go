package pdm

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
)

// foundState is where a state is.
type foundState struct {
	key    abiMarkKey
	near   bool   // else the state is in the map
	number uint32 // of its place
	owner  int64
}

// each calls f for every state, which it may not keep.
func (r *reader) each(f func(foundState, *abiPdmState)) error {
	var shared abiPdmShared
	if err := r.maps[".data.pdm"].Lookup(uint32(0), &shared); err != nil {
		return fmt.Errorf("reading how many places were taken: %w", err)
	}
	for i := range uint32(min(shared.Fresh, uint64(r.places.near.MaxEntries()))) {
		place, err := r.places.at(i)
		if err != nil {
			return err
		}
		owner := atomic.LoadInt64(&place.Owner)
		if owner <= nearFree { // or about to be another flow's
			continue
		}
		if n := *place; atomic.LoadInt64(&place.Owner) == owner {
			f(foundState{key: n.Key, near: true, number: i, owner: owner}, &n.State)
		}
	}
	return r.states.each(r.maps["pdm_states"], func(k *abiMarkKey, s *abiPdmState) { f(foundState{key: *k}, s) })
}

// deleteStale forgets states, which their flows' next packets would restart in any case. What such a packet counted since
// its state was read is reported from what is deleted. It returns how many of them had no place.
func (r *reader) deleteStale(at datapath.Moment, found []foundState, round uint64, emit func(*flow.Delta)) (far uint64, err error) {
	for i := range found {
		s, err := r.take(&found[i])
		if isGone(err) {
			continue // the program was first
		}
		if err != nil {
			return far, fmt.Errorf("deleting an old state: %w", err)
		}
		r.report(at, &found[i].key, s, nil, round, emit)
		delete(r.reported, s.Id)
		r.deleted++
		r.stats.Expired++
		r.stats.States--
		if !found[i].near {
			far++
		}
	}
	return far, nil
}

// take reads and deletes a state in one step.
func (r *reader) take(f *foundState) (*abiPdmState, error) {
	if f.near {
		return r.places.take(f.number, f.owner)
	}
	return takeState(r.maps["pdm_states"], &f.key)
}

// takeState does so in the map. Before Linux 5.14, a map that evicts takes two.
func takeState(m *ebpf.Map, key *abiMarkKey) (*abiPdmState, error) {
	var s abiPdmState
	err := m.LookupAndDelete(key, &s)
	if errors.Is(err, ebpf.ErrNotSupported) {
		if err = m.Lookup(key, &s); err == nil {
			err = m.Delete(key)
		}
	}
	return &s, err
}

func isGone(err error) bool { return errors.Is(err, ebpf.ErrKeyNotExist) }

// pdmBatch reads a hash map many elements at a time.
type pdmBatch[K, V any] struct {
	keys   []K
	values []V
}

const pdmBatchSize = 1024

// each calls f for every element; elements that come or go meanwhile may be
// missed, others are not, and none comes twice.
func (b *pdmBatch[K, V]) each(m *ebpf.Map, f func(*K, *V)) error {
	if b.keys == nil {
		b.keys, b.values = make([]K, pdmBatchSize), make([]V, pdmBatchSize)
	}
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, b.keys, b.values, nil)
		for i := range n {
			f(&b.keys[i], &b.values[i])
		}
		if isGone(err) {
			return nil
		}
		if errors.Is(err, unix.ENOSPC) { // a bucket with more than fit
			b.keys, b.values = make([]K, 2*len(b.keys)), make([]V, 2*len(b.keys))
			continue
		}
		if err != nil {
			return err
		}
	}
}
