package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// elsewhere is a history that is not in memory: it has the flows that are asked for.
type elsewhere struct{}

func (elsewhere) Answer(q query.Plan) query.Answer {
	a := query.Answer{By: q.By.Keys, Groups: 1, Records: 1}
	a.Rows = []query.Row{{Record: web(2000), Records: 1}}
	a.Total = a.Rows[0].Counters
	return a
}

func (e elsewhere) Query(_ context.Context, q query.Plan) (query.Answer, error) {
	err := q.Check()
	return e.Answer(q), err
}

func (elsewhere) Explain(query.Plan) (query.Explanation, error) {
	return query.Explanation{Cost: query.Cost{Records: 1}}, nil
}

func (e elsewhere) Follow(ctx context.Context, began func(), emit func(store.Period) error) error {
	began()
	if err := emit(e); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestAnotherHistory: the API needs nothing else of a history.
func TestAnotherHistory(t *testing.T) {
	a := startWith(t, "", elsewhere{})
	check := func(got Answer) {
		t.Helper()
		if len(got.Rows) != 1 || got.Rows[0].Bytes != 2000 || got.Total.Bytes != 2000 || len(got.By) != 1 {
			t.Errorf("%+v", got)
		}
	}
	got, err := a.client.Flows(t.Context(), Request{By: "proto"})
	if err != nil {
		t.Fatal(err)
	}
	check(got)
	enough := errors.New("enough")
	err = a.client.Follow(t.Context(), Request{By: "proto"}, func(got Answer) error { check(got); return enough })
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	if _, err := a.client.Flows(t.Context(), Request{By: "proto", Sort: "nothing"}); err == nil {
		t.Error("a sort that does not exist was accepted")
	}
}

// TestNothingOfThatTime: who asks for a time of which there is nothing learns how old the oldest record is.
func TestNothingOfThatTime(t *testing.T) {
	a := start(t, "")
	a.fill(web(1000))
	before := Request{Since: epoch.Add(-2 * time.Hour).Format(time.RFC3339), Until: epoch.Add(-time.Hour).Format(time.RFC3339)}
	got, err := a.client.Flows(t.Context(), before)
	if err != nil {
		t.Fatal(err)
	}
	want := "the oldest record is of " + epoch.Local().Format(time.DateTime)
	if got.Intervals != 0 || !got.Oldest.Equal(epoch) || !strings.Contains(got.Warning(), want) {
		t.Errorf("%d intervals, oldest %v, %q", got.Intervals, got.Oldest, got.Warning())
	}
	if got, err := a.client.Flows(t.Context(), Request{}); err != nil || !got.Oldest.IsZero() || got.Warning() != "" {
		t.Errorf("where there are records: oldest %v, %q, %v", got.Oldest, got.Warning(), err)
	}
}

// TestNamedSums: rows have the counters that are named, and no others; what is no counter is refused.
func TestNamedSums(t *testing.T) {
	a := start(t, "")
	a.fill(web(1000), web(500))
	all, err := a.client.Flows(t.Context(), Request{By: "proto"})
	if err != nil {
		t.Fatal(err)
	}
	some, err := a.client.Flows(t.Context(), Request{By: "proto", Sums: "bytes,wire_bytes"})
	if err != nil {
		t.Fatal(err)
	}
	want := flow.Counters{Bytes: all.Rows[0].Bytes, WireBytes: all.Rows[0].WireBytes}
	if len(some.Rows) != 1 || some.Rows[0].Counters != want || some.Total != want || want.Bytes == 0 || all.Rows[0].Packets == 0 {
		t.Errorf("%+v, want %+v", some.Rows, want)
	}
	if _, err := a.client.Flows(t.Context(), Request{By: "proto", Sums: "bytes,rtt"}); err == nil || !strings.Contains(err.Error(), `sum "rtt": there are`) {
		t.Errorf("%v", err)
	}
}

// TestExplain: what an answer would take is known without it, of the memory and of what lies behind it; what has no end, or is no
// question, has no cost.
func TestExplain(t *testing.T) {
	a := start(t, "")
	a.fill(web(1000), web(500))
	e, err := a.client.Explain(t.Context(), Request{By: "proto"})
	if err != nil || e.Intervals != 1 || e.Records != 2 || e.Bytes != 0 || e.Budget != "" || len(e.Engines) != 1 || e.Engines[0].Engine != "memory" {
		t.Errorf("%+v, %v", e, err)
	}
	later := Request{Since: epoch.Add(time.Hour).Format(time.RFC3339)}
	if e, err := a.client.Explain(t.Context(), later); err != nil || e.Records != 0 {
		t.Errorf("of a later time: %+v, %v", e, err)
	}
	for query, want := range map[string]string{"follow=true": "follow has no end, and so no cost", "filter=tpc": "did you mean tcp?", "by=nothing": "nothing"} {
		if code, body := a.get(t, "/api/v1/explain?"+query); code != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
}
