package api

import (
	"context"
	"errors"
	"testing"

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
