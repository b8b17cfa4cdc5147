package store

import (
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// TestRowsOfDrops: a row says which rule dropped its packets where one rule did, and sums of what had no
// space keep the rule.
func TestRowsOfDrops(t *testing.T) {
	dropped := func(port uint16, packets uint64, d *flow.Drop) flow.Record {
		r := record(1, 2, 100)
		r.SrcPort, r.Dropped, r.Drop = port, packets, d
		return r
	}
	a, b := &flow.Drop{Verdict: flow.VerdictDrop, Rule: 1, Text: "drop a"}, &flow.Drop{Verdict: flow.VerdictDrop, Rule: 2, Text: "drop b"}
	limit := &flow.Drop{Verdict: flow.VerdictLimit, Rule: 3, Text: "limit 1/s"}
	s := New(Default())
	fill(s, 0, 1, dropped(1, 3, a), dropped(2, 4, a), dropped(3, 5, b), dropped(4, 6, limit), dropped(5, 0, nil))
	for _, c := range []struct {
		by   string
		port map[uint16]flow.Drop // by source port of the row
	}{
		{"sport", map[uint16]flow.Drop{1: *a, 2: *a, 3: *b, 4: *limit, 5: {}}},
		{"proto", map[uint16]flow.Drop{0: {Verdict: flow.VerdictSeveral}}},
	} {
		for _, w := range ask(t, s, query.Plan{By: parseBy(t, c.by)}).Rows {
			got := flow.Drop{}
			if w.Drop != nil {
				got = *w.Drop
			}
			if want := c.port[w.SrcPort]; got != want {
				t.Errorf("by %s, port %d: %+v, want %+v", c.by, w.SrcPort, got, want)
			}
		}
	}
	rows := ask(t, s, query.Plan{By: parseBy(t, "drops.by"), Sort: "drops"}).Rows
	if len(rows) != 4 || rows[0].Dropped != 7 || rows[0].Drop.Text != "drop a" || rows[1].Dropped != 6 || rows[2].Dropped != 5 || rows[3].Dropped != 0 {
		t.Errorf("by rule: %+v", rows)
	}
	small := New(Config{History: 1})
	fill(small, 0, 1, dropped(1, 3, a), dropped(2, 4, a), dropped(3, 5, b))
	total := map[string]uint64{}
	for _, w := range ask(t, small, query.Plan{By: parseBy(t, "drops.by")}).Rows {
		total[w.Drop.Text] += w.Dropped
	}
	if total["drop a"] != 7 || total["drop b"] != 5 {
		t.Errorf("sums by rule: %v", total)
	}
}
