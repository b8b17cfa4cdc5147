package store

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// Over random batches: the bound holds, totals of what is kept are exact, and
// rows are what a plain model says.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 30).Draw(t, "limit")
		s := New(Config{History: limit})
		var batches [][]flow.Record
		for n := range rapid.IntRange(1, 6).Draw(t, "intervals") {
			batch := make([]flow.Record, rapid.IntRange(0, 40).Draw(t, "records"))
			for i := range batch {
				batch[i] = record(rapid.Byte().Draw(t, "src"), rapid.ByteRange(0, 2).Draw(t, "dst"), rapid.Uint64Range(1, 50).Draw(t, "bytes"))
			}
			batches = append(batches, batch)
			fill(s, n, n+1, batch...)
		}
		a, err := s.Query(context.Background(), query.Plan{By: query.By{Keys: []query.Key{{Name: "dst", Bits4: 32, Bits6: 128}}}})
		if err != nil {
			t.Fatal(err)
		}
		kept := batches[len(batches)-a.Intervals:]
		var want, summed uint64
		byDst := map[netip.Addr]uint64{}
		cost := 0
		for _, batch := range kept {
			cost += min(max(len(batch), 1), limit+1)
			slices.SortStableFunc(batch, func(a, b flow.Record) int { return cmp.Compare(b.Bytes, a.Bytes) })
			for i, r := range batch {
				want += r.Bytes
				if i >= limit {
					summed++
				}
				byDst[r.Dst] += r.Bytes
			}
		}
		if cost > limit+1 {
			t.Fatalf("%d records kept, the bound is %d", cost, limit)
		}
		if a.Total.Bytes != want || a.Summed != summed {
			t.Fatalf("%d bytes, %d summed; want %d and %d", a.Total.Bytes, a.Summed, want, summed)
		}
		if summed > 0 {
			return // which of equal flows were summed is open
		}
		for _, row := range a.Rows {
			if byDst[row.Dst] != row.Bytes {
				t.Fatalf("%s has %d bytes, want %d", row.Dst, row.Bytes, byDst[row.Dst])
			}
		}
	})
}
