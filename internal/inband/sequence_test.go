package inband_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/inband"
)

func TestSequence(t *testing.T) {
	type arrival struct {
		psn   uint16
		word  uint32
		fresh bool
		want  inband.Arrival
	}
	in := func(psn uint16, want inband.Arrival) arrival { return arrival{psn, uint32(psn), false, want} }
	for _, c := range []struct {
		name     string
		arrivals []arrival
		want     inband.SequenceCounts
	}{
		{
			"in order, around the end of 16 bits",
			[]arrival{in(65534, inband.First), in(65535, inband.InOrder), in(0, inband.InOrder), in(1, inband.InOrder)},
			inband.SequenceCounts{Packets: 4},
		},
		{
			"one lost at the end of 16 bits",
			[]arrival{in(65535, inband.First), in(1, inband.Gap)},
			inband.SequenceCounts{Packets: 2, Lost: 1},
		},
		{
			"lost, then late",
			[]arrival{in(1, inband.First), in(4, inband.Gap), in(2, inband.Reordered), in(5, inband.InOrder)},
			inband.SequenceCounts{Packets: 4, Lost: 1, Reordered: 1},
		},
		{
			"duplicates of the newest, of an older and of a late one",
			[]arrival{in(1, inband.First), in(3, inband.Gap), in(3, inband.Duplicate), in(1, inband.Duplicate), in(2, inband.Reordered), in(2, inband.Duplicate)},
			inband.SequenceCounts{Packets: 6, Reordered: 1, Duplicates: 3},
		},
		{
			"the first came second",
			[]arrival{in(10, inband.First), in(8, inband.Reordered), in(9, inband.Reordered), in(8, inband.Duplicate)},
			inband.SequenceCounts{Packets: 4, Reordered: 2, Duplicates: 1},
		},
		{
			"one before the first stays lost",
			[]arrival{in(10, inband.First), in(7, inband.Reordered)},
			inband.SequenceCounts{Packets: 2, Lost: 2, Reordered: 1},
		},
		{
			"segments of a burst",
			[]arrival{{5, 1000, false, inband.First}, {5, 2448, false, inband.Copy}, {5, 3896, false, inband.Copy}, {5, 1000, false, inband.Duplicate}, {6, 5344, false, inband.InOrder}},
			inband.SequenceCounts{Packets: 5, Copies: 2, Duplicates: 1},
		},
		{
			"as much lost as is still loss",
			[]arrival{in(0, inband.First), in(inband.MaxGap, inband.Gap)},
			inband.SequenceCounts{Packets: 2, Lost: inband.MaxGap - 1},
		},
		{
			"a stray number, and on",
			[]arrival{in(1, inband.First), in(30000, inband.Wild), in(2, inband.InOrder), in(30001, inband.Wild)},
			inband.SequenceCounts{Packets: 4, Wild: 2},
		},
		{
			"two in a row are a restart",
			[]arrival{in(1, inband.First), in(30000, inband.Wild), in(30001, inband.Restart), in(30002, inband.InOrder)},
			inband.SequenceCounts{Packets: 4, Wild: 1, Restarts: 1},
		},
		{
			"a sender that says it is new",
			[]arrival{in(1, inband.First), {500, 0, true, inband.Restart}, in(501, inband.InOrder)},
			inband.SequenceCounts{Packets: 3, Restarts: 1},
		},
		{
			"one that is new at an older number",
			[]arrival{in(1000, inband.First), {500, 0, true, inband.Restart}, in(501, inband.InOrder)},
			inband.SequenceCounts{Packets: 3, Restarts: 1},
		},
		{
			"a new sender's first packet, twice, and overtaken",
			[]arrival{in(8, inband.First), {7, 7, true, inband.Reordered}, {7, 7, true, inband.Duplicate}},
			inband.SequenceCounts{Packets: 3, Reordered: 1, Duplicates: 1},
		},
		{
			"too late to tell",
			[]arrival{in(1000, inband.First), in(936, inband.Late), in(937, inband.Reordered)},
			inband.SequenceCounts{Packets: 3, Late: 1, Reordered: 1, Lost: 62},
		},
		{
			"the farthest number of all",
			[]arrival{in(0, inband.First), in(32768, inband.Wild)},
			inband.SequenceCounts{Packets: 2, Wild: 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s inband.Sequence
			for i, a := range c.arrivals {
				if got := s.Observe(a.psn, a.word, a.fresh); got != a.want {
					t.Errorf("arrival %d, number %d: %v, want %v", i, a.psn, got, a.want)
				}
			}
			if d := cmp.Diff(c.want, s.SequenceCounts); d != "" {
				t.Error(d)
			}
		})
	}
}

// Against a list of all numbers, without wrap and without window.
func TestSequenceAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s inband.Sequence
		start := rapid.Uint16().Draw(t, "start")
		var want inband.SequenceCounts
		seen := map[int]bool{}
		lowest, highest := 0, 0
		for range rapid.IntRange(1, 300).Draw(t, "packets") {
			// Up to 40 ahead, or behind by less than the window.
			n := highest + rapid.IntRange(-inband.Window+1, 40).Draw(t, "step")
			if len(seen) == 0 {
				n = 0
			}
			s.Observe(start+uint16(n), uint32(n), false)
			want.Packets++
			switch {
			case seen[n]:
				want.Duplicates++
			case n < highest:
				want.Reordered++
			}
			seen[n] = true
			lowest, highest = min(lowest, n), max(highest, n)
		}
		want.Lost = uint64(highest-lowest+1) - uint64(len(seen))
		if d := cmp.Diff(want, s.SequenceCounts); d != "" {
			t.Fatal(d)
		}
	})
}

func BenchmarkSequence(b *testing.B) {
	var s inband.Sequence
	psn := uint16(0)
	for b.Loop() {
		psn++
		s.Observe(psn, 0, false)
	}
}
