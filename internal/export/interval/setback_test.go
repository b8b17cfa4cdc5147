package interval_test

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze"
	"github.com/waymark-net/waymark/internal/analyze/join"
	"github.com/waymark-net/waymark/internal/analyze/settings"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/export/analyzer"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/test/await"
)

// TestSetBack has an agent go on from an earlier state, as after a snapshot of its machine was restored: what it counts
// then is kept, too.
func TestSetBack(t *testing.T) {
	dir, err := os.MkdirTemp("", "an") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := config.Default()
	cfg.API.Socket = filepath.Join(dir, "s")
	own := settings.Section.Edit(&cfg)
	own.Listen, own.Path, own.Names = "127.0.0.1:0", dir, []string{"127.0.0.1"}
	a, err := analyze.New(cfg, analyze.Deps{Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Listen(); err != nil {
		t.Fatal(err)
	}
	run(t, a.Run)
	authority, err := analyze.OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	token, err := analyze.OpenTokens(dir).New("athos", authority.Fingerprint(), time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	url := "https://" + a.Addr().String()
	f, err := join.Host(context.Background(), url, token, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	e, err := analyzer.New(analyzer.Config{URL: url, CA: f.CA, Cert: f.Cert, Key: f.Key, Path: t.TempDir(), Size: 1 << 20, Timeout: 10 * time.Second}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Listen(); err != nil {
		t.Fatal(err)
	}
	run(t, e.Run)
	s := store.New(store.Default())
	s.OnEnd(e.Append)
	want := uint64(0)
	interval := func(rows int) {
		addInterval(s, rows)
		want += uint64(rows)
	}
	sent := func() bool { return e.Status().Exported == want }
	interval(3)
	interval(4)
	await.True(t, "two intervals to be sent", sent)
	e.SetBack(1)
	interval(5)
	interval(6)
	await.True(t, "the intervals after that", sent)
	answer, err := api.NewClient(filepath.Join(dir, "s")).Flows(context.Background(), api.Request{By: "host", Everywhere: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Rows) != 1 || answer.Rows[0].Records != want {
		t.Errorf("the analyzer has %+v, want %d records", answer.Rows, want)
	}
}

// run runs something until the test ends.
func run(t *testing.T, what func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- what(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := await.Signal(t, "the end", done); err != nil {
			t.Error(err)
		}
	})
}

func addInterval(s *store.Store, rows int) {
	now := time.Now()
	iv := s.Begin(now)
	for i := range rows {
		iv.Add(&flow.Record{Iface: "eth0", Family: 4, Proto: 17, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), SrcPort: uint16(i), Counters: flow.Counters{Packets: 1}, First: now, Last: now})
	}
	iv.End(now.Add(time.Second))
}
