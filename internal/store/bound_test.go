package store

import (
	"context"
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// The history holds no more than its bound while an interval is being filled,
// either: what that takes, older intervals give.
func TestRunningIntervalCounts(t *testing.T) {
	const limit = 10 * rowsChunk
	s := New(Config{History: limit})
	for n := range 10 {
		batch := make([]flow.Record, rowsChunk)
		for i := range batch {
			batch[i] = record(byte(i), byte(n), 10)
		}
		fill(s, n, n+1, batch...)
	}
	running := s.Begin(at(10))
	for i := range 5*rowsChunk + 1 {
		r := record(byte(i), 0, uint64(i))
		running.Add(&r)
		held := running.iv.rows.len()
		for _, iv := range s.view().intervals {
			held += iv.rows.len()
		}
		if held > limit {
			t.Fatalf("%d rows are held, the bound is %d", held, limit)
		}
	}
	running.End(at(11))
	a := ask(t, s, query.Plan{})
	if want := uint64(9*rowsChunk + 1); a.Records != want || a.Intervals != 5 || a.Summed != 0 {
		t.Errorf("%d records of %d intervals, %d summed; want %d of 5", a.Records, a.Intervals, a.Summed, want)
	}
}

// An answer says when the history reaches back less than asked, and why.
func TestShortHistory(t *testing.T) {
	s := New(Config{History: 4})
	ask := func(since int) query.Answer {
		a := ask(t, s, query.Plan{Since: at(since)})
		if !a.Asked.Equal(at(since)) {
			t.Errorf("since %v was asked, the answer says %v", at(since), a.Asked)
		}
		return a
	}
	fill(s, 10, 20, record(1, 1, 1))
	fill(s, 20, 30, record(1, 1, 1))
	if a := ask(15); a.Short != "" {
		t.Errorf("all is there: %q", a.Short)
	}
	if a := ask(5); a.Short != query.ShortStarted || !a.From.Equal(at(10)) {
		t.Errorf("before the start: %q, from %v", a.Short, a.From)
	}
	flood := make([]flow.Record, 20)
	for i := range flood {
		flood[i] = record(byte(i), 1, uint64(i))
	}
	fill(s, 30, 40, flood...)
	if a := ask(15); a.Short != query.ShortHistory || !a.From.Equal(at(30)) {
		t.Errorf("after a flood: %q, from %v", a.Short, a.From)
	}
	if a := ask(30); a.Short != "" {
		t.Errorf("what is kept whole: %q", a.Short)
	}
	a, err := s.Query(context.Background(), query.Plan{})
	if err != nil || a.Short != "" {
		t.Errorf("all that is kept: %q, %v", a.Short, err)
	}
}
