package verdict_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
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

// TestAhead: what was usual is known before somebody asks, and is not read by an answer that follows.
func TestAhead(t *testing.T) {
	w := newWorld(3)
	w.run(400, fault{})
	w.run(2, fault{server: 40 * time.Millisecond})
	cfg := config.Default().Why
	cfg.Compare = time.Hour
	deps := w.deps(cfg)
	history := &looking{History: w.history, before: w.now.Add(-verdict.DefaultRange - 2*time.Minute)}
	deps.History = history
	e := verdict.New(deps)
	if wait := e.Ahead(t.Context(), w.now); wait < time.Minute {
		t.Errorf("there are intervals, but the next look is after %v", wait)
	}
	if history.back == 0 {
		t.Fatal("nothing was read")
	}
	ahead := history.back
	a, err := e.Examine(t.Context(), verdict.Request{}, w.now)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Verdicts) == 0 || a.Verdicts[0].Usual == 0 {
		t.Errorf("%+v", a)
	}
	if ahead != 1 || history.back != ahead {
		t.Errorf("the time before was read %d times ahead, and %d times later", ahead, history.back-ahead)
	}
}

// TestUsualOfMany: where many paths are slow, what was usual of all paths is read once, and others that become slow later are
// compared with it.
func TestUsualOfMany(t *testing.T) {
	history := store.New(store.Default())
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	interval := func(slow int) { // of 30 clients, so many are slow
		iv := history.Begin(now)
		for n := range 30 {
			r := flow.Record{
				Iface: "eth0", IfIndex: 2, Family: 4, Proto: 6, Src: netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), Dst: netip.AddrFrom4([4]byte{10, 0, 1, 1}),
				SrcPort: 40000, DstPort: 443, Initiator: flow.InitiatorSrc, First: now, Last: now.Add(time.Second),
				Counters: flow.Counters{Packets: 9, Bytes: 900}, RTT: flow.RTT{Responder: time.Millisecond, Initiator: 4 * time.Millisecond},
			}
			if n < slow {
				r.RTT.Initiator = 400 * time.Millisecond
			}
			iv.Add(&r)
		}
		now = now.Add(10 * time.Second)
		iv.End(now)
	}
	for range 120 {
		interval(0)
	}
	seen := &looking{History: history}
	cfg := config.Default().Why
	cfg.Samples, cfg.Compare = 2, time.Hour
	deps := newWorld(1).deps(cfg)
	deps.History = seen
	e := verdict.New(deps)
	for _, slow := range []int{20, 25, 30} {
		interval(slow)
		interval(slow)
		seen.before = now.Add(-time.Minute)
		a, err := e.Examine(t.Context(), verdict.Request{Since: now.Add(-15 * time.Second)}, now)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, v := range a.Verdicts {
			if v.Kind == verdict.PathDelay && v.Usual > 0.004 && v.Usual < 0.006 {
				found += 1 + v.Others
			}
		}
		if found != slow {
			t.Errorf("%d paths are slow, %d are found: %+v", slow, found, a)
		}
	}
	if seen.back != 1 {
		t.Errorf("the time before was read %d times, not once", seen.back)
	}
}
