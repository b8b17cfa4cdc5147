package disk

import (
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/query"
)

// TestBudgets: a plan that takes more than it may is answered in part, and says which part, why, and what to do; what it
// would read is known before it runs.
func TestBudgets(t *testing.T) {
	b := newBoth(t, t.TempDir())
	for n := range 30 {
		b.fill(n, numbered(uint64(n)))
		if n%10 == 9 {
			if err := b.disk.Seal(); err != nil {
				t.Fatal(err)
			}
		}
	}
	x := query.Executor{Sources: []query.Source{b.disk}}
	for _, tt := range []struct {
		budget  query.Budget
		partial string
		least   uint64 // records of the answer
		most    uint64
	}{
		{query.Budget{}, "", 30, 30},
		{query.Budget{Bytes: 1}, "more than 1 bytes would have to be read: ask for less time, or filter by address", 10, 10},
		{query.Budget{Rows: 5}, "there are more groups than the 5 that a query may hold: the others are in the total only; filter, or group by less", 30, 30},
		{query.Budget{Time: time.Nanosecond}, "the time of the query (1ns) ended: ask for less time, filter by address, or allow more with timeout", 0, 0},
	} {
		for _, sums := range [][]string{nil, {"bytes"}} {
			p := query.Plan{Budget: tt.budget, Sums: sums}
			a := ask(t, p, b.disk)
			if a.Partial != tt.partial || a.Records < tt.least || a.Records > tt.most || tt.budget.Rows > 0 && len(a.Rows) > tt.budget.Rows {
				t.Errorf("%+v, sums %v: %d records, %d rows, %q", tt.budget, sums, a.Records, len(a.Rows), a.Partial)
			}
			e, err := x.Explain(p)
			if over := strings.Contains(e.Budget, "more than its budget of 1: ask for less time"); err != nil || over != (tt.budget.Bytes > 0) || e.Records != 30 {
				t.Errorf("%+v: explained as %+v, %v", tt.budget, e, err)
			}
		}
	}
	if got := b.disk.Status().Counts.Partial; got != 6 {
		t.Errorf("%d partial answers are counted, want 6", got)
	}
	if err := b.disk.close(); err != nil {
		t.Fatal(err)
	}
}
