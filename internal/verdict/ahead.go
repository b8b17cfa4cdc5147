package verdict

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	hostmemory "github.com/waymark-net/waymark/internal/memory"
)

// aheadEvery is how often Run examines, and soonEvery until a scan interval has ended.
const aheadEvery, soonEvery = 5 * time.Minute, 10 * time.Second

// growthAhead is how much the heap may grow meanwhile, in percent: nobody waits.
const growthAhead = 25

// Run examines the newest intervals from time to time, for nobody: what is slow is compared with a day before, and to
// read that takes longer than all the rest of an answer. Whoever asks later does not wait for it.
func (e *Examiner) Run(ctx context.Context, clock flow.Clock) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(e.ahead(ctx, clock())):
		}
	}
}

// ahead examines once, and says how long the next time has to wait.
func (e *Examiner) ahead(ctx context.Context, now time.Time) time.Duration {
	before, restore := e.memory.reads.Load(), hostmemory.CollectSooner(growthAhead)
	a, err := e.Examine(ctx, Request{}, now)
	restore()
	if e.memory.reads.Load() != before {
		debug.FreeOSMemory()
	}
	if err == nil && len(a.Examined) == 0 {
		return soonEvery
	}
	return aheadEvery
}
