package store

import (
	"errors"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// TestLimitKeepsFirst: an answer with a limit is the beginning of the one without.
func TestLimitKeepsFirst(t *testing.T) {
	s := New(Default())
	for n := range 4 { // intervals, one of them empty
		var records []flow.Record
		for i := range 50 * (n % 3) {
			records = append(records, record(byte(i*7), byte(i%5), uint64(i*7919%11)))
		}
		fill(s, n, n+1, records...)
	}
	for _, q := range []query.Plan{
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
// more than QueryBytes for each, one with a limit a fraction of that, and a further one
// of those who follow next to nothing.
func TestQueryMemory(t *testing.T) {
	const flows = 1 << 13
	s := New(Default())
	flood := func(n int) {
		iv := s.Begin(at(n))
		r := record(1, 1, 100)
		for i := range flows {
			r.SrcPort, r.DstPort = uint16(i), uint16(n)
			iv.Add(&r)
		}
		iv.End(at(n + 1))
	}
	check := func(what string, most uint64, answer func() query.Answer) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := answer()
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; a.Groups != flows || taken > flows*most+64<<10 {
			t.Errorf("%s: a query of %d rows allocates %d bytes, want %d for each", what, a.Groups, taken, most)
		}
	}
	flood(0)
	flood(1)
	q := query.Plan{Since: at(1).Add(time.Millisecond)}
	check("all", QueryBytes, func() query.Answer { return ask(t, s, q) })
	q.Limit = 10
	check("ten", QueryBytes/5, func() query.Answer { return ask(t, s, q) })

	q = query.Plan{}
	if err := q.Check(); err != nil {
		t.Fatal(err)
	}
	ended := errors.New("an interval ended")
	err := s.Follow(t.Context(), func() { flood(2) }, func(p Period) error {
		check("first of an interval", QueryBytes, func() query.Answer { return p.Answer(q) })
		check("second of an interval", 1, func() query.Answer { return p.Answer(q) })
		return ended
	})
	if !errors.Is(err, ended) {
		t.Error(err)
	}
}
