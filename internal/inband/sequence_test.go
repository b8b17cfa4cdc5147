package inband_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/wire/pdm"
)

// unproven is a packet of a sender that has received nothing.
func unproven(psn uint16) inband.Received {
	return inband.Received{Option: pdm.Option{PSNTP: psn, DeltaTLS: 1}, Word: uint32(psn), Now: 1}
}

func TestSequence(t *testing.T) {
	type arrival struct {
		psn  uint16
		word uint32
		want inband.Arrival
	}
	in := func(psn uint16, want inband.Arrival) arrival { return arrival{psn, uint32(psn), want} }
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
			[]arrival{{5, 1000, inband.First}, {5, 2448, inband.Copy}, {5, 3896, inband.Copy}, {5, 1000, inband.Duplicate}, {6, 5344, inband.InOrder}},
			inband.SequenceCounts{Packets: 5, Copies: 2, Duplicates: 1},
		},
		{
			"segments of a burst that were overtaken",
			[]arrival{{5, 1000, inband.First}, {5, 2448, inband.Copy}, {6, 5344, inband.InOrder}, {5, 3896, inband.Copy}},
			inband.SequenceCounts{Packets: 4, Copies: 2},
		},
		{
			"duplicates long after a burst",
			[]arrival{{5, 1, inband.First}, {5, 2, inband.Copy}, in(40, inband.Gap), in(5, inband.Copy), in(69, inband.Gap), in(40, inband.Duplicate)},
			inband.SequenceCounts{Packets: 6, Copies: 2, Duplicates: 1, Lost: 34 + 28},
		},
		{
			"as much lost as one packet can report",
			[]arrival{in(0, inband.First), in(inband.MaxAhead, inband.Gap)},
			inband.SequenceCounts{Packets: 2, Lost: inband.MaxAhead - 1},
		},
		{
			"more takes four",
			[]arrival{in(0, inband.First), in(1000, inband.Wild), in(1001, inband.Wild), in(1004, inband.Wild), in(1002, inband.Wild), in(1005, inband.Gap), in(1003, inband.Reordered)},
			inband.SequenceCounts{Packets: 7, Lost: 999, Wild: 4, Reordered: 1},
		},
		{
			"stray numbers, and on",
			[]arrival{in(1, inband.First), in(30000, inband.Wild), in(30001, inband.Wild), in(30002, inband.Wild), in(2, inband.InOrder), in(30003, inband.Wild), in(3, inband.InOrder)},
			inband.SequenceCounts{Packets: 3, Wild: 4},
		},
		{
			"four in a row are a restart",
			[]arrival{in(1, inband.First), in(30000, inband.Wild), in(30001, inband.Wild), in(30003, inband.Wild), in(30004, inband.Restart), in(30002, inband.Reordered), in(30005, inband.InOrder)},
			inband.SequenceCounts{Packets: 7, Wild: 3, Restarts: 1, Reordered: 1},
		},
		{
			"too late to tell",
			[]arrival{in(1000, inband.First), in(936, inband.Late), in(937, inband.Reordered)},
			inband.SequenceCounts{Packets: 2, Late: 1, Reordered: 1, Lost: 62},
		},
		{
			"the farthest number of all",
			[]arrival{in(0, inband.First), in(32768, inband.Wild)},
			inband.SequenceCounts{Packets: 1, Wild: 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s inband.Sequence
			for i, a := range c.arrivals {
				r := unproven(a.psn)
				r.Word = a.word
				if got := s.Observe(r); got != a.want {
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
			r := unproven(start + uint16(n))
			r.Word = uint32(n)
			s.Observe(r)
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
		s.Observe(unproven(psn))
	}
}
