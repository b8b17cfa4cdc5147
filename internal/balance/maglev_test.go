package balance

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func members(n int, weight func(int) uint32) (all []Member) {
	for i := range n {
		all = append(all, Member{ID: fmt.Sprintf("10.%d.%d.1", i/250, i%250), Weight: weight(i), Number: uint16(i)})
	}
	return all
}

func one(int) uint32 { return 1 }

// TestRingShares: entries are shared by weight, each to one entry, and their order has no influence.
func TestRingShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "backends")
		weights := rapid.SliceOfN(rapid.Uint32Range(0, 100), n, n).Draw(t, "weights")
		all := members(n, func(i int) uint32 { return weights[i] })
		ring := Ring(nil, all)
		var sum uint64
		for _, w := range weights {
			sum += uint64(w)
		}
		got := map[uint16]int{}
		for _, number := range ring {
			got[number]++
		}
		if sum == 0 {
			if got[nobody] != RingSize {
				t.Fatalf("%v, and nobody has a weight", got)
			}
			return
		}
		for i, w := range weights {
			want := float64(w) * float64(RingSize) / float64(sum)
			if have := float64(got[uint16(i)]); math.Abs(have-want) >= 1 {
				t.Errorf("backend %d of weight %d of %d has %v entries, want %v", i, w, sum, have, want)
			}
		}
		slices.Reverse(all)
		if !slices.Equal(ring, Ring(nil, all)) {
			t.Error("the order of backends has an influence")
		}
	})
}

// moved counts the entries that differ.
func moved(a, b []uint16) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// TestRingMoves: of 1,000 backends, one that comes or goes moves at most 1.3 times its share, and shares stay even.
func TestRingMoves(t *testing.T) {
	all := members(1000, one)
	ring := Ring(nil, all)
	share := float64(RingSize) / 1000
	for i, gone := range []int{0, 1, 99, 500, 998, 999} {
		less := slices.Delete(slices.Clone(all), gone, gone+1)
		without := Ring(ring, less)
		if n := moved(ring, without); float64(n) > 1.3*share {
			t.Errorf("without backend %d, %d entries move, %.2f times its share", gone, n, float64(n)/share)
		}
		again := Ring(without, append(less, Member{ID: fmt.Sprint("new ", i), Weight: 1, Number: uint16(gone)}))
		if n := moved(without, again); float64(n) > 1.3*share {
			t.Errorf("with another in its place, %d entries move, %.2f times its share", n, float64(n)/share)
		}
		ring = again
		all[gone].ID = fmt.Sprint("new ", i)
	}
	got := map[uint16]int{}
	for _, number := range ring {
		got[number]++
	}
	for number, n := range got {
		if n < 65 || n > 66 {
			t.Errorf("backend %d has %d entries", number, n)
		}
	}
}

// TestRingFollows: whatever backends come, go and change their weight, a table that follows another one has even shares, and what
// neither left nor has too much moves nowhere.
func TestRingFollows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "backends")
		draw := func(name string) []Member {
			weights := rapid.SliceOfN(rapid.Uint32Range(0, 9), n, n).Draw(t, name)
			return members(n, func(i int) uint32 { return weights[i] })
		}
		before, next := draw("before"), draw("next")
		old := Ring(nil, before)
		ring := Ring(old, next)
		var sum, least float64
		for _, m := range next {
			sum += float64(m.Weight)
		}
		had, have := map[uint16]float64{}, map[uint16]float64{}
		for i := range ring {
			had[old[i]]++
			have[ring[i]]++
		}
		for _, m := range next {
			share := 0.0
			if sum > 0 {
				share = float64(m.Weight) * float64(RingSize) / sum
			}
			if math.Abs(have[m.Number]-share) >= 1 {
				t.Errorf("backend %d has %v entries, want %v", m.Number, have[m.Number], share)
			}
			least += max(had[m.Number]-share, 0)
		}
		if n := moved(old, ring); sum > 0 && float64(n) > least+had[nobody]+float64(len(next)) {
			t.Errorf("%d entries move, %v have to", n, least)
		}
	})
}
