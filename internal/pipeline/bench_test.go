package pipeline

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/waymark-net/waymark/internal/flow"
)

// A buffer is handed out again only when every exporter is done with it.
func TestBuffersAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		slow := &script{export: func(_ context.Context, r []flow.Record) (int, error) {
			if len(r) > 0 {
				<-block
			}
			return len(r), nil
		}}
		p := newPipeline(10*BufferRecords, slow, &script{})
		stop := start(t, p)
		first := numbered(p, 0, BufferRecords)
		p.Publish(first)
		synctest.Wait()
		if again := p.Buffer(); &again[:1][0] == &first[0] {
			t.Error("a buffer is reused while an exporter reads it")
		}
		close(block)
		synctest.Wait()
		if again := p.Buffer(); &again[:1][0] != &first[0] {
			t.Error("a buffer is not reused")
		}
		// A few records in a large buffer must not keep it from being used.
		few := numbered(p, 0, 3)
		p.Publish(few)
		if again := p.Buffer(); &again[:1][0] != &few[0] {
			t.Error("a nearly empty buffer is kept")
		}
		stop()
	})
}

// The cost of a record on its way from the table to an exporter.
func BenchmarkPublish(b *testing.B) {
	slots := make(chan struct{}, 16) // batches on their way
	e := &counter{exported: func() { <-slots }}
	p := newPipeline(1<<20, e)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	b.ReportAllocs()
	for i := 0; i < b.N; i += BufferRecords {
		slots <- struct{}{}
		p.Publish(p.Buffer()[:BufferRecords])
	}
	cancel()
	<-done
	if want := uint64(b.N+BufferRecords-1) / BufferRecords * BufferRecords; p.Status()[0].Exported != want {
		b.Errorf("exported %d, want %d", p.Status()[0].Exported, want)
	}
}

type counter struct{ exported func() }

func (*counter) Name() string { return "counter" }

func (*counter) Target() string { return "" }

func (*counter) Close() error { return nil }

func (c *counter) Export(_ context.Context, r []flow.Record) (int, error) {
	if len(r) > 0 {
		c.exported()
	}
	return len(r), nil
}
