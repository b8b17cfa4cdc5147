package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/soak"
)

// keeping is a configuration that counts on the link of oneLink and keeps records in a directory.
func keeping(dir string) string {
	return `
flow: {max_entries: 16384, scan_interval: 50ms, idle_timeout: 500ms, active_timeout: 2s}
interfaces: [near]
history: {use: always, path: ` + dir + `}
`
}

// floodAlways has flows arrive on the link of oneLink until the test ends.
func floodAlways(t *testing.T, flows int, over time.Duration) (h *lab.Host, end func()) {
	t.Helper()
	h = oneLink(t)
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				newFlows(t, h, flows, over)
			}
		}
	})
	end = sync.OnceFunc(func() { close(stop); wait.Wait() })
	t.Cleanup(end)
	return h, end
}

// written are the intervals and records that the agent has on disk, of those it made.
func (a *agent) written(t *testing.T) obs.HistoryCounts {
	t.Helper()
	s := a.status(t)
	if s.History == nil {
		t.Fatal("the agent keeps no history")
	}
	return s.History.Counts
}

// acknowledged waits until the agent has written what it counted until now, and says until when that is.
func (a *agent) acknowledged(t *testing.T) (until time.Time) {
	t.Helper()
	until = time.Now()
	before := a.written(t).Intervals
	await.Success(t, func() error { // one that had ended, the one that runs, and the next
		if n := a.written(t).Intervals; n < before+3 {
			return notYet("%d intervals are written, %d before", n, before)
		}
		return nil
	})
	return until
}

// answer is what an agent answers about all flows of a time.
type answer struct {
	Intervals int               `json:"intervals"`
	Partial   string            `json:"partial"`
	Lost      uint64            `json:"lost"`
	Flows     []json.RawMessage `json:"rows"`
}

func (a *agent) between(t *testing.T, since, until time.Time) (got answer) {
	t.Helper()
	r := a.ask(t, "flows", "--since", since.Format(time.RFC3339Nano), "--until", until.Format(time.RFC3339Nano), "--limit", "0", "-o", "json")
	if r.code != 0 {
		t.Fatal(r.stderr)
	}
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
		t.Fatalf("%v: %.300s", err, r.stdout)
	}
	return got
}

// TestHistoryKilled kills an agent under load, again and again. What it had written when it answered, the next agent
// answers from disk: every record, with the same content, once.
func TestHistoryKilled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "history")
	h, end := floodAlways(t, 2000, 100*time.Millisecond)
	a := start(t, setup{host: h, config: keeping(dir)})
	rounds, flows := soak.Times(3, 100), 0
	for round := range rounds {
		began := time.Now()
		await.Success(t, func() error {
			if n := a.written(t).Records; n < 2000 {
				return notYet("%d records are written", n)
			}
			return nil
		})
		until := a.acknowledged(t)
		want := a.between(t, began, until)
		a.kill()
		a = start(t, setup{host: h, config: keeping(dir)})
		got := a.between(t, began, until)
		if got.Intervals != want.Intervals || got.Partial != "" || got.Lost > 0 || !slices.EqualFunc(got.Flows, want.Flows, func(x, y json.RawMessage) bool { return string(x) == string(y) }) {
			t.Fatalf("round %d: %d flows of %d intervals, %d intervals lost, %q; before the kill %d of %d", round, len(got.Flows), got.Intervals, got.Lost, got.Partial, len(want.Flows), want.Intervals)
		}
		flows += len(got.Flows)
	}
	end()
	s := a.status(t)
	a.stop(t)
	if c := s.History.Counts; c.Lost+c.Damaged+c.Errors > 0 || flows < rounds*1000 || rounds >= 100 && s.History.Files == 0 {
		t.Errorf("%d flows compared; %+v", flows, s.History)
	}
	t.Logf("%d kills: %d flows compared, %d records in %d files and the log", rounds, flows, s.History.Records, s.History.Files)
}

// TestHistoryDiskFull: an agent whose file system is full counts on and reports what is not kept, and keeps what comes
// once there is space: so much that what is counted until the test sees it fits, however long that takes.
func TestHistoryDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast") // what it leaves is full within seconds, and holds the first intervals
	if err := os.WriteFile(ballast, make([]byte, 64<<20-256<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	h := oneLink(t)
	a := start(t, setup{host: h, config: keeping(filepath.Join(dir, "history"))})
	// Flows are sent only while a state is waited for: what a slow test would send meanwhile would fill the space again.
	has := func(what string, is func(s *obs.Status) bool) {
		t.Helper()
		await.Success(t, func() error {
			newFlows(t, h, 2000, 0)
			if s := a.status(t); !is(&s) {
				return notYet("%s: %+v", what, *s.History)
			}
			return nil
		})
	}
	has("full", func(s *obs.Status) bool { return s.History.Failing != "" && s.History.Counts.LostRecords > 4000 })
	full := a.status(t)
	if full.History.Counts.Records == 0 {
		t.Errorf("nothing was kept before: %+v", *full.History)
	}
	has("counts on", func(s *obs.Status) bool {
		return s.Drain.Count > full.Drain.Count+3 && s.Drain.Records > full.Drain.Records+4000
	})
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	has("space again", func(s *obs.Status) bool {
		return s.History.Failing == "" && s.History.Counts.Records > full.History.Counts.Records+4000
	})
	a.stop(t)
}

// mostResident is how much more memory an agent with a history may take than one without, at any moment.
const mostResident = 20 << 20

// TestHistoryMemory: of two agents that count the same, while records are written, and sealed into files, the one that
// keeps them takes little more at most. The kernel keeps the peak, so that nothing has to be asked at the right moment.
func TestHistoryMemory(t *testing.T) {
	t.Parallel()
	h := oneLink(t)
	config := "flow: {max_entries: 65536, scan_interval: 500ms, idle_timeout: 1s, active_timeout: 10s}\ninterfaces: [near]\n"
	with := start(t, setup{host: h, config: config + "history: {use: always}\n"})
	without := start(t, setup{host: h, config: config + "history: {use: never}\n"})
	for _, a := range []*agent{with, without} { // the peak of the start, which loads programs, is of no interest
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", a.Process.Pid), []byte("5"), 0); err != nil {
			t.Fatal(err)
		}
	}
	await.Success(t, func() error { // a file has at least 98,304 records
		newFlows(t, h, 20_000, 0)
		if s := with.status(t); s.History.Files < 2 {
			return notYet("%+v", *s.History)
		}
		return nil
	})
	peak := func(a *agent) int { return statusMemory(t, a.Process.Pid, "VmHWM") }
	more := peak(with) - peak(without)
	t.Logf("at most %.1f and %.1f MB resident", float64(peak(with))/1e6, float64(peak(without))/1e6)
	if more > mostResident {
		t.Errorf("%.1f MB more resident with a history, at most %.1f may be", float64(more)/1e6, mostResident/1e6)
	}
	with.kill()
	without.kill()
}
