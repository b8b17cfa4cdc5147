package verdict_test

import (
	"context"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/verdict"
)

// looking counts queries that reach back beyond the range that is examined.
type looking struct {
	verdict.History
	before time.Time
	back   int
}

func (l *looking) Query(ctx context.Context, p query.Plan) (query.Answer, error) {
	if p.Since.Before(l.before) {
		l.back++
	}
	return l.History.Query(ctx, p)
}

// TestUsual: what was usual is read once for the windows of an answer and for those that follow soon, and gives the same
// verdicts as when it is read again.
func TestUsual(t *testing.T) {
	w := newWorld(3)
	w.run(400, fault{})
	w.run(2, fault{server: 40 * time.Millisecond})
	seen := &looking{History: w.history}
	cfg := config.Default().Why
	cfg.Compare = time.Hour
	deps := w.deps(cfg)
	deps.History = seen
	e := verdict.New(deps)
	for n := range 4 {
		seen.before = w.now.Add(-verdict.DefaultRange - 2*time.Minute)
		got, err := e.Examine(t.Context(), verdict.Request{}, w.now)
		if err != nil {
			t.Fatal(err)
		}
		again := w.examine(t)
		if len(got.Verdicts) == 0 || got.Verdicts[0].Text != again.Verdicts[0].Text || got.Verdicts[0].Usual == 0 {
			t.Errorf("answer %d: %+v; read again: %+v", n, got.Verdicts, again.Verdicts)
		}
		w.run(1, fault{server: 40 * time.Millisecond})
	}
	if seen.back != 1 {
		t.Errorf("the time before was read %d times, not once", seen.back)
	}
}
