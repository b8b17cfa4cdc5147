package interval_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/export/interval"
	"github.com/waymark-net/waymark/internal/export/queue"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/test/await"
)

// inbox is a receiver in memory, which refuses intervals of so many records.
type inbox struct {
	interval.Frames
	mu     sync.Mutex
	away   bool
	other  bool // it says that it has other intervals, whatever comes
	asked  int
	refuse int
	rows   []int
}

func (*inbox) Close() {}

func (x *inbox) Send(_ context.Context, batch []queue.Entry, body []byte) (kept int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked++
	if x.away {
		return 0, errors.New("nobody is there")
	}
	if x.other {
		return -1, interval.ErrOther
	}
	for range batch {
		f, rest, err := frame.Next(body)
		if err != nil {
			return kept, err
		}
		if body = rest; int(f.Rows) == x.refuse {
			return kept, &interval.Refused{Reason: "rejected", Err: errors.New("not these")}
		}
		x.rows = append(x.rows, int(f.Rows))
		kept++
	}
	return kept, nil
}

func (x *inbox) is(away bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.away = away
}

type sender struct {
	*interval.Sender
	store *store.Store
	end   func()
}

func newSender(t *testing.T, to interval.Receiver, dir string, size uint64, log ...*slog.Logger) *sender {
	t.Helper()
	log = append(log, slog.New(slog.DiscardHandler))
	s := &sender{store: store.New(store.Default()), Sender: interval.New(interval.Config{
		Name: "inbox", Target: "memory", Key: "export.inbox.path", Path: dir, Size: size, Most: 1 << 20, Pause: time.Millisecond,
	}, to, log[0])}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.end = sync.OnceFunc(func() {
		cancel()
		if err := await.Signal(t, "the end of the sender", ended); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.end)
	s.store.OnEnd(s.Append)
	return s
}

func (s *sender) lost(reason string) uint64 {
	i := slices.IndexFunc(s.Status().Lost, func(l obs.Loss) bool { return l.Reason == reason })
	if i < 0 {
		return 0
	}
	return s.Status().Lost[i].Count
}

// TestSender: intervals wait while nobody takes them, across a reload and a restart; what does not fit, or is refused, is counted.
func TestSender(t *testing.T) {
	dir := t.TempDir()
	to := &inbox{away: true, refuse: 3}
	s := newSender(t, to, dir, 1<<20)
	for rows := 1; rows <= 4; rows++ {
		addInterval(s.store, rows)
	}
	await.True(t, "an error", func() bool { x := s.Status(); return x.LastError != "" && x.Retries > 2 && x.Queued == 10 })

	next := newSender(t, to, dir, 1<<20) // as with a reload: it waits for the directory
	addInterval(next.store, 5)
	if x := next.Status(); x.LastError == "" || x.Queued != 5 {
		t.Errorf("%+v", x)
	}
	s.end()
	await.True(t, "all to wait in the queue", func() bool { return next.Status().Queued == 15 })
	to.is(false)
	await.True(t, "all to be sent", func() bool { return next.Status().Queued == 0 })
	if !slices.Equal(to.rows, []int{1, 2, 4, 5}) {
		t.Errorf("received: %v", to.rows)
	}
	if x := next.Status(); x.Exported != 12 || next.lost("rejected") != 3 || len(x.Lost) != 1 || x.LastError != "" {
		t.Errorf("%+v", x)
	}
	next.end()

	to.is(true)
	small := newSender(t, to, dir, 4000)
	for range 20 {
		addInterval(small.store, 10)
	}
	await.True(t, "a full queue", func() bool {
		x := small.Status()
		return small.lost("queue_full") > 0 && uint64(x.Queued)+small.lost("queue_full") == 200
	})
	if x := small.Status(); x.QueuedBytes > 4000 || x.QueueBytes != 4000 {
		t.Errorf("%+v", x)
	}
}

// TestOther: a receiver that takes nothing under any identity is asked after pauses, not all the time, and is an error that the status
// shows. Once it does, nothing is missing.
func TestOther(t *testing.T) {
	to := &inbox{other: true}
	s := newSender(t, to, t.TempDir(), 1<<20)
	addInterval(s.store, 1)
	addInterval(s.store, 2)
	await.True(t, "an error", func() bool { return s.Status().LastError != "" })
	await.True(t, "more attempts", func() bool { return s.Status().Retries > 4 })
	to.mu.Lock()
	asked := to.asked
	to.other = false
	to.mu.Unlock()
	if asked > 14 { // pauses double: these take 8 s
		t.Errorf("%d requests", asked)
	}
	await.True(t, "all to be sent", func() bool { return s.Status().Queued == 0 })
	if !slices.Equal(to.rows, []int{1, 2}) || s.Status().LastError != "" {
		t.Errorf("received: %v, %+v", to.rows, s.Status())
	}
}

// TestTaken: what does not fit into memory while somebody else has the queue is counted as that, not as a slow disk, and is logged.
func TestTaken(t *testing.T) {
	dir := t.TempDir()
	newSender(t, &inbox{}, dir, 1<<20)
	var log await.Text
	second := newSender(t, &inbox{}, dir, 1<<20, slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		b := store.NewBuilder(store.Head{Sequence: 1, From: time.Now(), To: time.Now()})
		for range 1 << 17 {
			b.Add(&flow.Record{Counters: flow.Counters{Packets: 1}}, 0)
		}
		second.Append(b.End())
	}
	if x := second.Status(); second.lost("queue_failed") != 1<<17 || x.Queued != 1<<18 || len(x.Lost) != 1 {
		t.Errorf("%+v", x)
	}
	await.True(t, "a warning", func() bool { return strings.Contains(log.String(), "cannot be opened") })
}
