package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
)

// script is an exporter that behaves as a test says. Records are distinguished by
// their packet count.
type script struct {
	export func(ctx context.Context, records []flow.Record) (int, error)
	closed bool

	mu       sync.Mutex
	got      []uint64
	reported NotSent
}

func (s *script) Name() string { return "script" }

func (s *script) Target() string { return "here" }

func (s *script) Close() error { s.closed = true; return nil }

func (s *script) ReportNotSent(n NotSent) { s.reported = n }

func (s *script) Export(ctx context.Context, records []flow.Record) (int, error) {
	n, err := len(records), error(nil)
	if s.export != nil {
		n, err = s.export(ctx, records)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records[:n] {
		s.got = append(s.got, r.Packets)
	}
	return n, err
}

// numbered returns n records with packet counts from first on.
func numbered(p *Pipeline, first, n int) []flow.Record {
	records := p.Buffer()
	for i := range n {
		records = append(records, flow.Record{Counters: flow.Counters{Packets: uint64(first + i), Bytes: 10}})
	}
	return records
}

func newPipeline(queue int, exporters ...Exporter) *Pipeline {
	var outputs []Output
	for _, e := range exporters {
		outputs = append(outputs, Output{Exporter: e, Queue: queue})
	}
	return New(Default(), outputs, slog.New(slog.DiscardHandler), time.Now)
}

// start runs p and returns a function that stops it and waits for its end.
func start(t *testing.T, p *Pipeline) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}

func lost(e obs.Exporter) (n uint64) {
	for _, l := range e.Lost {
		n += l.Count
	}
	return n
}

func TestSlowExporterBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		slow := &script{export: func(_ context.Context, r []flow.Record) (int, error) { <-block; return len(r), nil }}
		quick := &script{}
		p := newPipeline(100, slow, quick)
		stop := start(t, p)
		for i := range 20 {
			p.Publish(numbered(p, 30*i, 30)) // would hang here
			synctest.Wait()
		}

		status := p.Status()
		if got := status[0]; got.Queued != 100 || got.Exported != 0 ||
			!cmp.Equal(got.Lost, []obs.Loss{{Where: "queue", Reason: "queue_full", Count: 500}}) {
			t.Errorf("slow exporter: %+v", got)
		}
		if got := status[1]; got.Queued != 0 || got.Exported != 600 || got.Lost != nil {
			t.Errorf("quick exporter: %+v", got)
		}
		close(block)
		stop()
		if got := p.Status()[0]; got.Exported != 100 || got.Queued != 0 {
			t.Errorf("slow exporter in the end: %+v", got)
		}
		if !slow.closed || !quick.closed {
			t.Error("exporters are not closed")
		}
		if got := slow.reported; got.Records != 500 || got.Bytes != 5000 || got.First.IsZero() || got.Last.Before(got.First) {
			t.Errorf("reported as not sent: %+v", got)
		}
	})
}

func TestRetryWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Duration
		began := time.Now()
		e := &script{}
		e.export = func(_ context.Context, r []flow.Record) (int, error) {
			if len(r) == 0 {
				return 0, nil
			}
			tries = append(tries, time.Since(began))
			if len(tries) <= 10 {
				return 0, errors.New("connection refused")
			}
			return len(r), nil
		}
		p := newPipeline(100, e)
		stop := start(t, p)
		p.Publish(numbered(p, 0, 10))
		time.Sleep(time.Second) // of the bubble's clock
		if got := p.Status()[0]; got.LastError != "connection refused" || got.Retries == 0 || got.Queued != 10 {
			t.Errorf("while it fails: %+v", got)
		}
		time.Sleep(time.Minute)
		if got := p.Status()[0]; got.LastError != "" || got.Retries != 10 || got.Exported != 10 {
			t.Errorf("afterwards: %+v", got)
		}
		pause := Default().Backoff
		for i := 1; i < len(tries); i++ {
			if got := tries[i] - tries[i-1]; got < pause/2 || got > pause {
				t.Errorf("pause %d is %v, want %v to %v", i, got, pause/2, pause)
			}
			pause = min(2*pause, Default().MaxBackoff)
		}
		stop()
	})
}

func TestShutdown(t *testing.T) {
	refused := errors.New("connection refused")
	hang := make(chan struct{})
	for _, tt := range []struct {
		name   string
		export func(ctx context.Context, r []flow.Record) (int, error)
		within time.Duration
		want   []obs.Loss
	}{
		{
			name:   "flushed",
			export: func(_ context.Context, r []flow.Record) (int, error) { time.Sleep(time.Second); return len(r), nil },
			within: 4 * time.Second,
		},
		{
			name:   "dead collector",
			export: func(context.Context, []flow.Record) (int, error) { return 0, refused },
			within: Default().FlushTimeout,
			want:   []obs.Loss{{Where: "queue", Reason: "shutdown", Count: 60}},
		},
		{
			name:   "waits for its context",
			export: func(ctx context.Context, _ []flow.Record) (int, error) { <-ctx.Done(); return 5, ctx.Err() },
			within: Default().FlushTimeout,
			want:   []obs.Loss{{Where: "queue", Reason: "shutdown", Count: 55}},
		},
		{
			name:   "hangs indefinitely",
			export: func(context.Context, []flow.Record) (int, error) { <-hang; return 0, nil },
			within: Default().FlushTimeout + abandonAfter,
			want:   []obs.Loss{{Where: "queue", Reason: "shutdown", Count: 60}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang = make(chan struct{})
				e := &script{}
				e.export = func(ctx context.Context, r []flow.Record) (int, error) {
					if len(r) == 0 {
						return 0, nil
					}
					return tt.export(ctx, r)
				}
				var log bytes.Buffer
				p := New(Default(), []Output{{Exporter: e, Queue: 100}}, slog.New(slog.NewTextHandler(&log, nil)), time.Now)
				stop := start(t, p)
				for i := range 3 {
					p.Publish(numbered(p, 20*i, 20))
				}
				began := time.Now()
				stop()
				if took := time.Since(began); took > tt.within {
					t.Errorf("took %v, want at most %v", took, tt.within)
				}
				got := p.Status()[0]
				if !cmp.Equal(got.Lost, tt.want) || got.Queued != 0 || got.Exported+lost(got) != 60 {
					t.Errorf("%+v, want losses %+v", got, tt.want)
				}
				reported := strings.Count(log.String(), `msg="records are lost"`)
				for _, l := range got.Lost {
					if want := fmt.Sprintf("reason=shutdown records=%d\n", l.Count); reported != 1 || !strings.Contains(log.String(), want) {
						t.Errorf("the log lacks %q, once:\n%s", want, log.String())
					}
				}
				p.Publish(numbered(p, 60, 1))
				if after := p.Status()[0]; tt.name != "hangs indefinitely" && lost(after) != lost(got)+1 {
					t.Errorf("a record published too late is not counted: %+v", after)
				}
				close(hang)
			})
		})
	}
}

func TestGoneOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &script{export: func(_ context.Context, r []flow.Record) (int, error) {
			if len(r) == 0 {
				return 0, nil
			}
			return 3, fmt.Errorf("write: %w", ErrGone)
		}}
		p := newPipeline(100, e)
		stop := start(t, p)
		p.Publish(numbered(p, 0, 10))
		synctest.Wait()
		p.Publish(numbered(p, 10, 10))
		synctest.Wait()
		got := p.Status()[0]
		want := []obs.Loss{{Where: "queue", Reason: "gone", Count: 17}}
		if got.Exported != 3 || !cmp.Equal(got.Lost, want) || got.Retries != 0 || got.LastError == "" {
			t.Errorf("%+v", got)
		}
		stop()
	})
}

func TestLossAfterExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		e := &script{export: func(_ context.Context, r []flow.Record) (int, error) {
			calls++
			if calls == 3 {
				return 0, &LostError{Records: 7, Reason: "refused", Err: errors.New("connection refused")}
			}
			return len(r), nil
		}}
		p := newPipeline(100, e)
		stop := start(t, p)
		p.Publish(numbered(p, 0, 7))
		synctest.Wait()
		p.Publish(numbered(p, 7, 10))
		stop()
		got := p.Status()[0]
		want := []obs.Loss{{Where: "output", Reason: "refused", Count: 7}}
		if got.Exported != 17 || !cmp.Equal(got.Lost, want) || got.Retries != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestNamesIdentify(t *testing.T) {
	p := newPipeline(1, &script{}, &script{}, &script{})
	var names []string
	for _, e := range p.Status() {
		names = append(names, e.Name)
	}
	if want := []string{"script", "script-2", "script-3"}; !slices.Equal(names, want) {
		t.Errorf("names are %q, want %q", names, want)
	}
}

// Every record is exported once, in order, or counted as lost, whatever fails.
func TestEveryRecordAccountedFor(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		queue := rapid.IntRange(1, 300).Draw(rt, "queue")
		batches := rapid.SliceOfN(rapid.IntRange(0, 200), 0, 20).Draw(rt, "batches")
		fail := rapid.SliceOfN(rapid.IntRange(-1, 200), 1, 20).Draw(rt, "taken before a failure, or none")
		synctest.Test(t, func(t *testing.T) {
			e, call := &script{}, 0
			e.export = func(_ context.Context, r []flow.Record) (int, error) {
				call++
				if n := fail[call%len(fail)]; n >= 0 && n < len(r) {
					return n, errors.New("fails")
				}
				return len(r), nil
			}
			p := newPipeline(queue, e, &script{})
			stop := start(t, p)
			published := 0
			for _, n := range batches {
				p.Publish(numbered(p, published, n))
				published += n
				if n%2 == 0 {
					synctest.Wait()
				}
			}
			stop()
			got := p.Status()[0]
			if got.Queued != 0 || int(got.Exported+lost(got)) != published || int(got.Exported) != len(e.got) {
				t.Errorf("published %d, got %d: %+v", published, len(e.got), got)
			}
			if !slices.IsSorted(e.got) || len(slices.Compact(slices.Clone(e.got))) != len(e.got) {
				t.Errorf("records out of order or twice: %v", e.got)
			}
		})
	})
}
