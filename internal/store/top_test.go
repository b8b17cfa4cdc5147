package store

import (
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// TestLimitKeepsFirst: an answer with a limit is the beginning of the one without.
func TestLimitKeepsFirst(t *testing.T) {
	s := New(Default())
	for n := range 4 { // intervals, one of them empty
		var records []flow.Record
		for i := range 50 * (n % 3) {
			records = append(records, record(byte(i*7), byte(i%5), uint64(i*2654435761%11)))
		}
		fill(s, n, n+1, records...)
	}
	for _, q := range []Query{
		{},
		{Sort: "src"},
		{Sort: "rate", Reverse: true},
		{Sort: "ttl_min"},
		{By: parseBy(t, "src/30,dport")},
		{By: parseBy(t, "pair"), Sort: "packets"},
	} {
		all := ask(t, s, q)
		if len(all.Rows) != all.Groups || all.Groups < 10 {
			t.Fatalf("%+v: %d rows of %d", q, len(all.Rows), all.Groups)
		}
		for q.Limit = 1; q.Limit <= all.Groups+1; q.Limit++ {
			some := ask(t, s, q)
			want := all.Rows[:min(q.Limit, all.Groups)]
			if !reflect.DeepEqual(some.Rows, want) || some.Total != all.Total || some.Groups != all.Groups {
				t.Fatalf("%+v: rows differ from the first of all", q)
			}
		}
	}
}

// TestQueryMemory: in a flood, where each record is a row of its own, a query takes no
// more than QueryBytes for each, and one with a limit a fraction of that.
func TestQueryMemory(t *testing.T) {
	const flows = 1 << 15
	s := New(Default())
	for n := range 2 {
		iv := s.Begin(at(n))
		r := record(1, 1, 100)
		for i := range flows {
			r.SrcPort, r.DstPort = uint16(i), uint16(i>>16+n)
			iv.Add(&r)
		}
		iv.End(at(n + 1))
	}
	for _, tt := range []struct{ limit, most int }{
		{0, int(QueryBytes)},
		{10, int(QueryBytes) / 5},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := ask(t, s, Query{Since: at(1).Add(time.Millisecond), Limit: tt.limit})
		runtime.ReadMemStats(&after)
		if taken := int(after.TotalAlloc - before.TotalAlloc); a.Groups != flows || taken > flows*tt.most+64<<10 {
			t.Errorf("limit %d: a query of %d rows allocates %d bytes for each, want %d", tt.limit, a.Groups, taken/flows, tt.most)
		}
	}
}
