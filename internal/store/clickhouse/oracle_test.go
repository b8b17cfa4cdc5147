package clickhouse

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	export "github.com/waymark-net/waymark/internal/export/clickhouse"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/storetest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/clickhouse"
	"github.com/waymark-net/waymark/test/soak"
)

const host = "alpha"

// filled is a memory, and a server with the same records, which came as the agent sends them.
func filled(t *testing.T, intervals int) (*store.Store, *Source, *clickhouse.Server) {
	t.Helper()
	server := clickhouse.Start(t)
	schema := export.DefaultSchema()
	schema.Keep = 0 // the records are old
	for _, s := range schema.Statements() {
		server.Query(t, s)
	}
	cfg := export.Default()
	cfg.URL, cfg.QueuePath = server.URL, t.TempDir()
	e, err := export.New(cfg, flow.Origin{Host: host, Sampling: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Listen(); err != nil {
		t.Fatal(err)
	}
	memory := store.New(store.Default())
	memory.OnEnd(e.Append)
	records := rapid.Custom(storetest.DrawRecords)
	for n := range intervals {
		iv := memory.Begin(storetest.At(n))
		list := records.Example(n)
		for i := range list {
			iv.Add(&list[i])
		}
		iv.End(storetest.At(n + 1))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	await.Success(t, func() error {
		if n := server.Query(t, "SELECT count() FROM waymark.flows_intervals"); n != fmt.Sprint(intervals) {
			return fmt.Errorf("%s intervals of %d: %+v", n, intervals, e.Status())
		}
		return nil
	})
	cancel()
	if err := await.Signal(t, "the end of the exporter", ended); err != nil {
		t.Fatal(err)
	}
	client, err := export.NewClient(cfg.Server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return memory, &Source{Client: client, Tables: cfg.Tables, Host: host}, server
}

func ask(t *testing.T, p query.Plan, s ...query.Source) query.Answer {
	t.Helper()
	x := query.Executor{Sources: s}
	a, err := x.Answer(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestMemoryIsTheReference: random plans have the same answer from ClickHouse as from memory.
func TestMemoryIsTheReference(t *testing.T) {
	const intervals = 9
	memory, far, _ := filled(t, intervals)
	plans := rapid.Custom(func(t *rapid.T) query.Plan { return storetest.DrawPlan(t, intervals) })
	found, failed := 0, 0
	for n := range soak.Times(40, 2000) {
		p := plans.Example(n)
		want, got := ask(t, p, memory), ask(t, p, far)
		if want.Records > 0 {
			found++
		}
		if diff := gocmp.Diff(want, got, storetest.SameAnswer); diff != "" {
			t.Errorf("plan %d: by %v, fold %d, filter %q, sort %s, everywhere %t, step %v, sums %v (-memory +clickhouse):\n%s",
				n, p.By.Keys, p.By.Fold, p.Filter, p.Sort, p.Everywhere, p.Step, p.Sums, diff)
			if failed++; failed > 3 {
				t.FailNow()
			}
		}
	}
	if found < soak.Times(10, 500) {
		t.Errorf("%d plans find records: this tests little", found)
	}
}
