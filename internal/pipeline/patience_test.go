package pipeline

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// A queue holds no more than its limit. What comes beyond waits for an exporter
// that is at work, however large the burst.
func TestBurstWaitsForAnExporterAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := 0
		e := &script{}
		p := newPipeline(10, e)
		e.export = func(_ context.Context, r []flow.Record) (int, error) {
			time.Sleep(time.Millisecond)
			most = max(most, p.Status()[0].Queued)
			return len(r), nil
		}
		stop := start(t, p)
		for i := range 20 {
			p.Publish(numbered(p, 50*i, 50)) // 5 times the queue
		}
		p.PublishLast(numbered(p, 1000, 500))
		stop()
		if got := p.Status()[0]; got.Exported != 1500 || lost(got) != 0 || most > 10 || !slices.IsSorted(e.got) {
			t.Errorf("%+v, %d queued at most", got, most)
		}
	})
}

// An exporter that takes something now and then holds others up for a quarter of
// the time at most, and one that takes nothing is not waited for again.
func TestPatience(t *testing.T) {
	for _, tt := range []struct {
		name   string
		takes  time.Duration // for each record
		most   time.Duration // waited in all; 0: a quarter of the time
		exact  bool          // all are exported
		failed error
	}{
		{name: "slow", takes: 100 * time.Millisecond},
		{name: "stuck", takes: time.Hour, most: stall},
		{name: "quick enough", takes: 2 * time.Millisecond, most: 20 * time.Second, exact: true},
		{name: "fails", most: stall, failed: errors.New("connection refused")},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := &script{}
			e.export = func(ctx context.Context, r []flow.Record) (int, error) {
				if len(r) == 0 || tt.failed != nil {
					return 0, tt.failed
				}
				select {
				case <-time.After(tt.takes):
					return 1, nil
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}
			p := newPipeline(10, e)
			stop := start(t, p)
			var waited time.Duration
			first := time.Now()
			published := 0
			for range 100 { // a drain every second
				began := time.Now()
				for range 10 {
					p.Publish(numbered(p, published, 10))
					published += 10
				}
				waited += time.Since(began)
				time.Sleep(time.Until(began.Add(time.Second)))
			}
			most := tt.most
			if most == 0 {
				most = Default().Patience + time.Since(first)/refill
			}
			if waited > most {
				t.Errorf("%s: others waited for %v, at most %v is allowed", tt.name, waited, most)
			}
			stop()
			got := p.Status()[0]
			if int(got.Exported+lost(got)) != published || tt.exact && lost(got) != 0 {
				t.Errorf("%s: %d published; %+v", tt.name, published, got)
			}
		})
	}
}
