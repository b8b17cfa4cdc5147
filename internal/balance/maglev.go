package balance

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/waymark-net/waymark/internal/order"
)

// RingSize is the number of entries of a Maglev table. It is a prime, so that each step leads through all of them.
const RingSize = int(abiBalanceSizeBALANCE_RING)

// nobody is an entry without a backend.
const nobody = uint16(abiBalanceSizeBALANCE_NOBODY)

// Member is a backend in a Maglev table.
type Member struct {
	ID     string // its entries follow from it
	Weight uint32 // 0: it gets none
	Number uint16 // what its entries say
}

// Ring builds the Maglev table of backends (Eisenbud et al., NSDI 2016, section 3.4): each takes, in its own order, the entries
// that are still free, and as many in a round as its weight says. The order of the members has no influence; their IDs
// differ.
//
// Of a table that is built without the one before, a backend that comes or goes changes six times its share when there are 1,000. With a
// table from before (nil: there is none), only what has to move does: the entries of backends that left, and as many as a new one
// is to have. The result depends on that table and on the members alone, so several balancers agree.
func Ring(before []uint16, members []Member) []uint16 {
	turns := newTurns(members)
	ring, free := keep(before, turns)
	if len(turns) == 0 {
		return ring
	}
	free += release(ring, turns, free)
	free -= fill(ring, turns, free, func(t *turn) int { return t.least })
	fill(ring, turns, free, func(t *turn) int { return t.most })
	return ring
}

// turn is a backend that takes entries.
type turn struct {
	weight, credit uint64
	at, step       int // of the order in which it takes them
	hash           uint64
	number         uint16
	have           int
	least, most    int // its share, rounded down and up
	share          float64
}

func newTurns(members []Member) (turns []turn) {
	var sum float64
	for _, m := range members {
		sum += float64(m.Weight)
	}
	for _, m := range members {
		if m.Weight == 0 {
			continue
		}
		a, b := spread(m.ID, 1), spread(m.ID, 2)
		share := float64(m.Weight) * float64(RingSize) / sum
		turns = append(turns, turn{
			weight: uint64(m.Weight), number: m.Number, hash: a,
			at: int(a % uint64(RingSize)), step: 1 + int(b%uint64(RingSize-1)),
			share: share, least: int(share), most: int(math.Ceil(share)),
		})
	}
	order.By(turns, func(a, b turn) int { return cmp.Compare(a.hash, b.hash) })
	return turns
}

// keep is a table with the entries of backends that stay, and how many are free.
func keep(before []uint16, turns []turn) (ring []uint16, free int) {
	ring = make([]uint16, RingSize)
	stays := map[uint16]*turn{}
	for i := range turns {
		stays[turns[i].number] = &turns[i]
	}
	for i := range ring {
		ring[i] = nobody
		if before != nil {
			if t := stays[before[i]]; t != nil {
				ring[i] = t.number
				t.have++
				continue
			}
		}
		free++
	}
	return ring, free
}

// release frees entries of those who have most beyond their share, until all others can have theirs.
func release(ring []uint16, turns []turn, free int) (freed int) {
	need := -free
	donors := make([]*turn, len(turns))
	for i := range turns {
		donors[i] = &turns[i]
		need += max(turns[i].least-turns[i].have, 0)
		if over := turns[i].have - turns[i].most; over > 0 {
			freed += turns[i].give(ring, over)
		}
	}
	for freed < need {
		order.By(donors, func(a, b *turn) int { return cmp.Compare(float64(b.have)-b.share, float64(a.have)-a.share) })
		for _, t := range donors {
			if freed < need && t.have > t.least {
				freed += t.give(ring, 1)
			}
		}
	}
	return freed
}

// give frees so many entries of a backend, those that it would take last.
func (t *turn) give(ring []uint16, n int) int {
	at := t.at
	for range n {
		for ring[at] != t.number {
			at = (at + RingSize - t.step) % RingSize
		}
		ring[at] = nobody
	}
	t.have -= n
	return n
}

// fill has backends take entries in turn, as long as they have fewer than a limit.
func fill(ring []uint16, turns []turn, free int, limit func(*turn) int) (filled int) {
	var top uint64
	for i := range turns {
		top = max(top, turns[i].weight)
	}
	for took := true; took && filled < free; {
		took = false
		for i := range turns {
			t := &turns[i]
			if t.have >= limit(t) || filled == free {
				continue
			}
			took = true
			if t.credit += t.weight; t.credit < top {
				continue
			}
			t.credit -= top
			t.take(ring)
			filled++
		}
	}
	return filled
}

// take is the next free entry in the order of the backend.
func (t *turn) take(ring []uint16) {
	for ring[t.at] != nobody {
		t.at = (t.at + t.step) % RingSize
	}
	ring[t.at] = t.number
	t.have++
}

// spread is a hash of a text (FNV-1a, mixed), the same everywhere and always.
func spread(text string, which uint64) uint64 {
	hash := 0xcbf29ce484222325 ^ which*0x9e3779b97f4a7c15
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * 0x100000001b3
	}
	hash = (hash ^ hash>>31) * 0xbf58476d1ce4e5b9
	return bits.RotateLeft64((hash^hash>>29)*0x94d049bb133111eb, 17)
}
