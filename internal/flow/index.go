package flow

import "hash/maphash"

// index finds the entry of a key: open addressing with linear probing over
// eight-octet places, so that a key that is absent costs one cache line, and one
// that is present a second, its entry's, which the caller wants anyway. A map
// with 48-octet keys costs about twice that, for every record several times.
type index struct {
	seed   maphash.Seed
	places []place // a power of two of them
	used   int
	key    func(entry int32) *Key
}

// place holds an entry and the upper half of its key's hash; tag 0 is free.
type place struct {
	tag   uint32
	entry int32
}

const minPlaces = 64

func newIndex(key func(entry int32) *Key) index {
	return index{seed: maphash.MakeSeed(), places: make([]place, minPlaces), key: key}
}

// hash splits into where to look first and a tag that is never 0.
func (x *index) hash(k *Key) (at int, tag uint32) {
	h := maphash.Comparable(x.seed, *k)
	return int(h) & (len(x.places) - 1), uint32(h>>32) | 1
}

// find returns the entry of a key, or −1.
func (x *index) find(k *Key) int32 {
	at, tag := x.hash(k)
	for ; x.places[at].tag != 0; at = (at + 1) & (len(x.places) - 1) {
		if p := x.places[at]; p.tag == tag && *x.key(p.entry) == *k {
			return p.entry
		}
	}
	return -1
}

// insert adds a key that is not there.
func (x *index) insert(k *Key, entry int32) {
	if x.used >= len(x.places)/4*3 {
		x.resize(2 * len(x.places))
	}
	at, tag := x.hash(k)
	x.put(at, place{tag, entry})
	x.used++
}

func (x *index) put(at int, p place) {
	for x.places[at].tag != 0 {
		at = (at + 1) & (len(x.places) - 1)
	}
	x.places[at] = p
}

// resize makes n places, a power of two.
func (x *index) resize(n int) {
	old := x.places
	x.places = make([]place, n)
	for _, p := range old {
		if p.tag != 0 {
			at, tag := x.hash(x.key(p.entry))
			x.put(at, place{tag, p.entry})
		}
	}
}

// remove takes out a key that is there, and closes the gap: what follows moves
// back as far as its hash allows, so that no search stops early.
func (x *index) remove(k *Key, entry int32) {
	mask := len(x.places) - 1
	gap, _ := x.hash(k)
	for x.places[gap].entry != entry || x.places[gap].tag == 0 {
		gap = (gap + 1) & mask
	}
	for at := (gap + 1) & mask; x.places[at].tag != 0; at = (at + 1) & mask {
		home, _ := x.hash(x.key(x.places[at].entry))
		if (at-home)&mask >= (at-gap)&mask {
			x.places[gap] = x.places[at]
			gap = at
		}
	}
	x.places[gap] = place{}
	x.used--
}
