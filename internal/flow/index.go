package flow

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// index finds the entry of a key: open addressing with linear probing over
// eight-byte places, so that a key that is absent costs one cache line, and one
// that is present a second, its entry's, which the caller wants anyway. Both
// halves of a conversation begin at the same place, since who asks for one asks
// for the other, too. A map with 48-byte keys costs more than twice that.
type index struct {
	seed   [4]uint64
	places []place // a power of two of them
	used   int
	key    func(entry int32) *Key
}

// place holds an entry and the tag of its key; tag 0 is free.
type place struct {
	tag   uint32
	entry int32
}

const minPlaces = 64

func newIndex(key func(entry int32) *Key) index {
	x := index{places: make([]place, minPlaces), key: key}
	for i := range x.seed {
		x.seed[i] = rand.Uint64()
	}
	return x
}

// end is the hash of one half of what differs between the halves of a conversation.
// It is keyed, as Go's own of processors without AES is: nobody who sends packets can
// choose flows that meet. maphash takes four times as long, 30 ns of a record.
func (x *index) end(addr *[16]byte, port uint16) uint64 {
	a, b := binary.NativeEndian.Uint64(addr[:8]), binary.NativeEndian.Uint64(addr[8:])
	hi, lo := bits.Mul64(a^x.seed[0], b^x.seed[1])
	hi, lo = bits.Mul64(hi^lo^x.seed[2], uint64(port)^x.seed[3])
	return hi ^ lo
}

// tag is a hash of a key that is never 0. It tells where the search begins, but
// for its lowest bit, which distinguishes the halves of a conversation.
func (x *index) tag(k *Key) uint32 {
	dstPort := k.DstPort
	rest := uint64(k.Iface)<<32 | uint64(k.VLAN)<<20 | uint64(k.InnerVLAN)<<8 | uint64(k.Proto)
	if k.Proto == protoICMP || k.Proto == protoICMPv6 {
		dstPort = k.SrcPort
		if r := k.Reverse(); r.DstPort != ^uint16(0) {
			rest ^= uint64(k.DstPort^r.DstPort) << 48 // the same for request and reply
		} else {
			rest ^= uint64(k.DstPort) << 48
		}
	}
	a, b := x.end(&k.Src, k.SrcPort), x.end(&k.Dst, dstPort)
	hi, lo := bits.Mul64(a+b^rest, 0x9e3779b97f4a7c15)
	tag := uint32(hi^lo) &^ 1
	if a < b {
		tag |= 1
	}
	return max(tag, 2)
}

// reverse is the tag of the key that is the reverse of k, which has this tag.
func (x *index) reverse(tag uint32, k, back *Key) uint32 {
	if k.Proto == protoICMP || k.Proto == protoICMPv6 || tag < 4 || k.Src == k.Dst && k.SrcPort == k.DstPort {
		return x.tag(back)
	}
	return tag ^ 1
}

func (x *index) home(tag uint32) int { return int(tag>>1) & (len(x.places) - 1) }

// find returns the entry of a key with this tag, or −1.
func (x *index) find(tag uint32, k *Key) int32 {
	for at := x.home(tag); x.places[at].tag != 0; at = (at + 1) & (len(x.places) - 1) {
		if p := x.places[at]; p.tag == tag && *x.key(p.entry) == *k {
			return p.entry
		}
	}
	return -1
}

// insert adds a key that is not there.
func (x *index) insert(tag uint32, entry int32) {
	if x.used >= len(x.places)/4*3 {
		x.resize(2 * len(x.places))
	}
	x.put(place{tag, entry})
	x.used++
}

func (x *index) put(p place) {
	at := x.home(p.tag)
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
			x.put(p)
		}
	}
}

// remove removes a key that is there, and closes the gap: what follows moves
// back as far as its home allows, so that no search stops early.
func (x *index) remove(tag uint32, entry int32) {
	mask := len(x.places) - 1
	gap := x.home(tag)
	for x.places[gap].entry != entry || x.places[gap].tag == 0 {
		gap = (gap + 1) & mask
	}
	for at := (gap + 1) & mask; x.places[at].tag != 0; at = (at + 1) & mask {
		if (at-x.home(x.places[at].tag))&mask >= (at-gap)&mask {
			x.places[gap] = x.places[at]
			gap = at
		}
	}
	x.places[gap] = place{}
	x.used--
}
