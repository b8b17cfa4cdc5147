package clickhouse

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/export/queue"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/storetest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/clickhouse"
)

var (
	origin = flow.Origin{Host: "alpha", Sampling: 1}
	epoch  = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
)

// agent is an exporter with what feeds it.
type agent struct {
	*Exporter
	store *store.Store
	end   func()
}

// newAgent runs an exporter, as the agent does.
func newAgent(t *testing.T, url, dir string) *agent {
	t.Helper()
	cfg := Default()
	cfg.URL, cfg.QueuePath, cfg.Pause = url, dir, 10*time.Millisecond
	e, err := New(cfg, origin, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	a := &agent{Exporter: e, store: store.New(store.Default())}
	a.store.OnEnd(e.Append)
	a.store.Resume(e.Last())
	a.end = func() {
		cancel()
		if err := await.Signal(t, "the end of the exporter", ended); err != nil {
			t.Error(err)
		}
	}
	return a
}

// fill ends an interval with records, and returns their packets.
func (a *agent) fill(n int, records []flow.Record) (packets uint64) {
	iv := a.store.Begin(epoch.Add(time.Duration(n) * 10 * time.Second))
	for i := range records {
		records[i].Packets++
		packets += records[i].Packets
		iv.Add(&records[i])
	}
	iv.End(epoch.Add(time.Duration(n+1) * 10 * time.Second))
	return packets
}

func drawRecords(seed int) []flow.Record {
	list := rapid.Custom(storetest.DrawRecords).Example(seed)
	if len(list) == 0 && seed > 0 {
		return drawRecords(seed + 100)
	}
	return list
}

// sent waits for an empty queue.
func (a *agent) sent(t *testing.T) {
	t.Helper()
	await.Success(t, func() error {
		if s := a.Status(); s.Queued > 0 || s.QueuedBytes > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// TestOnce: each interval is stored once, whatever happens: without tables, while the server is killed, across a restart of the agent, and
// when it is sent again because its answer was lost.
func TestOnce(t *testing.T) {
	server := clickhouse.Start(t)
	dir := t.TempDir()
	a := newAgent(t, server.URL, dir)
	var packets uint64
	var records int
	fill := func(n int) {
		list := drawRecords(n)
		records += len(list)
		packets += a.fill(n, list)
	}
	fill(0)
	await.Success(t, func() error {
		if s := a.Status().LastError; !strings.Contains(s, "waymark config clickhouse") {
			return fmt.Errorf("error without tables: %q", s)
		}
		return nil
	})
	schema := DefaultSchema()
	schema.Keep = 2 * 365 * 24 * time.Hour // the records are old
	for _, s := range schema.Statements() {
		server.Query(t, s)
		server.Query(t, s) // changes nothing
	}
	for _, s := range DefaultSchema().Additions() {
		server.Query(t, s)
	}
	for n := 1; n < 4; n++ {
		fill(n)
	}
	fill(3 + 1)
	a.sent(t)
	if s := a.Status(); s.LastError != "" || len(s.Lost) > 0 || s.Exported != uint64(records) {
		t.Errorf("%+v, want %d records", s, records)
	}

	server.Stop()
	for n := 5; n < 9; n++ {
		fill(n)
	}
	await.True(t, "an error that says what to do", func() bool { return strings.Contains(a.Status().LastError, "start ClickHouse there") })
	a.end()
	entries, bodies := waiting(t, dir)
	if len(entries) != 4 {
		t.Fatalf("%d intervals wait, want 4", len(entries))
	}
	a = newAgent(t, server.URL, dir)
	for n := 9; n < 12; n++ {
		fill(n)
	}
	server.Again(t)
	a.sent(t)
	for range 2 {
		if err := (receiver{a.Exporter}).insert(t.Context(), entries[0], bodies[0]); err != nil {
			t.Fatal(err)
		}
	}
	a.end()
	for query, want := range map[string]string{
		"SELECT count(), sum(packets), uniqExact(interval) FROM waymark.flows":                            fmt.Sprintf("%d\t%d\t%d", records, packets, 11), // one has no records
		"SELECT count(), sum(rows), min(sequence), max(sequence) FROM waymark.flows_intervals":            fmt.Sprintf("12\t%d\t1\t12", records),
		"SELECT sum(records), sum(packets) FROM waymark.flows_1m":                                         fmt.Sprintf("%d\t%d", records, packets),
		"SELECT sum(records), sum(packets), count(DISTINCT time) FROM waymark.flows_1h":                   fmt.Sprintf("%d\t%d\t1", records, packets),
		"SELECT countIf(time < '2026-01-02 03:04:00' OR time > '2026-01-02 03:06:00') FROM waymark.flows": "0",
	} {
		if got := server.Query(t, query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// waiting is what an agent that ended left in its queue.
func waiting(t *testing.T, dir string) (entries []queue.Entry, bodies [][]byte) {
	t.Helper()
	q, err := queue.Open(dir, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	q.Take(1<<30, func(e queue.Entry, b []byte) error {
		entries, bodies = append(entries, e), append(bodies, b)
		return nil
	})
	return entries, bodies
}
