package pipeline

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/await"
)

// closable counts what it is given.
type closable struct {
	name  string
	taken int
	ended chan struct{}
}

func (c *closable) Name() string   { return c.name }
func (c *closable) Target() string { return "test" }
func (c *closable) Close() error   { close(c.ended); return nil }
func (c *closable) Export(_ context.Context, records []flow.Record) (int, error) {
	c.taken += len(records)
	return len(records), nil
}

// TestExportersComeAndGo: one that is removed exports what it was given and is closed; one that takes its place has its
// name, and gets what is published from then on.
func TestExportersComeAndGo(t *testing.T) {
	first, second := &closable{name: "x", ended: make(chan struct{})}, &closable{name: "x", ended: make(chan struct{})}
	p := New(Default(), []Output{{Exporter: first, Queue: 1000}}, slog.New(slog.DiscardHandler), time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	await.True(t, "a running pipeline", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.soft != nil
	})
	publish := func(n int) {
		for range n {
			p.Publish(append(p.Buffer(), flow.Record{Counters: flow.Counters{Packets: 1}}))
		}
	}
	publish(10)
	p.Remove(first)
	p.Add(Output{Exporter: second, Queue: 1000})
	publish(5)
	select {
	case <-first.ended:
	case <-time.After(time.Minute):
		t.Fatal("the exporter that was removed is not closed")
	}
	if s := p.Status(); len(s) != 1 || s[0].Name != "x" {
		t.Errorf("status %+v", s)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if first.taken != 10 || second.taken != 5 {
		t.Errorf("%d and %d records, want 10 and 5", first.taken, second.taken)
	}
	// It has ended: what comes now is never started.
	p.Add(Output{Exporter: &closable{name: "y", ended: make(chan struct{})}, Queue: 1})
}
