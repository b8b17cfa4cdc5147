package browser

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab/past"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/disk"
	"github.com/waymark-net/waymark/test/soak"
)

// TestTimes measures how soon pages show what they are for, over a generated history on disk: of a day with SOAK=1. See
// web/test/times.mjs.
func TestTimes(t *testing.T) {
	hours := soak.Times(1, 24)
	url := serve(t.Context(), t, "127.0.0.1:0", kept(t, hours))
	run(t, "times.mjs", "CONSOLE="+url, fmt.Sprintf("HOURS=%d", hours), fmt.Sprintf("ROUNDS=%d", soak.Times(1, 3)))
}

// kept is a history of so many hours, the newest also in memory, as an agent has that was not restarted.
func kept(t *testing.T, hours int) *store.Store {
	t.Helper()
	behind, err := disk.Open(disk.Config{Path: t.TempDir(), Size: 1 << 30}, disk.Deps{Origin: flow.Origin{Sampling: 1}, Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	memory := store.New(store.Default())
	memory.OnEnd(behind.Append)
	memory.Behind("alpha", behind)
	now := time.Now()
	for h := hours - 1; h >= 0; h-- {
		fill(memory, now.Add(-time.Duration(h)*past.Length))
		behind.Work()
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = behind.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return memory
}
