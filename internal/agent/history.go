package agent

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/clickhouse"
	"github.com/waymark-net/waymark/internal/store/disk"
)

// stateDirectory is where the history is without systemd.
const stateDirectory = "/var/lib/waymark"

// historyPath is the directory of the history. systemd sets the variable of statePath to one directory, or to
// several with colons.
func historyPath(c *config.History) string {
	if c.Path != "" {
		return c.Path
	}
	return statePath("history")
}

// statePath is a directory of what outlives the agent.
func statePath(name string) string {
	list := filepath.SplitList(os.Getenv("STATE_DIRECTORY"))
	return filepath.Join(cmp.Or(append(list, stateDirectory)...), name)
}

// keepsHistory reports whether the configuration wants records on disk.
func keepsHistory(cfg *config.Config) bool {
	return cfg.History.Use == "always" || cfg.History.Use == "auto" && cfg.Profile != "small"
}

// openHistory opens the records on disk, and has the store in memory hand on to them. Unless they
// are demanded, an agent that cannot keep them counts without.
func (a *Agent) openHistory() error {
	cfg := a.cfg
	last := uint64(0)
	for _, e := range a.exports.databases() {
		last = max(last, e.Last())
	}
	a.store.Resume(last)
	a.store.OnEnd(a.intervalEnded)
	a.store.Behind(a.host, far{a})
	if !keepsHistory(&cfg) {
		return nil
	}
	path := historyPath(&cfg.History)
	s, err := disk.Open(disk.Config{Path: path, Size: cfg.History.Size, Time: cfg.History.Time},
		disk.Deps{Origin: a.exports.origin, Log: a.log, Clock: a.clock})
	if err != nil {
		if cfg.History.Use == "always" {
			return fmt.Errorf("history in %s: %w; with history.use auto, the agent would start without", path, err)
		}
		a.log.Warn("records are not kept on disk: set history.path to a directory that the agent may write, or history.use to never",
			"path", path, "error", err)
		return nil
	}
	a.disk = s
	a.store.Resume(max(last, s.Last()))
	a.store.Behind(a.host, s, far{a})
	return nil
}

// intervalEnded hands an interval on to all who keep it longer than the memory does.
func (a *Agent) intervalEnded(ended store.Ended) {
	if a.disk != nil {
		a.disk.Append(ended)
	}
	a.exports.interval(ended)
}

// far is the first server that gets whole intervals: it has what is no longer here.
type far struct{ *Agent }

// Far implements query.Far.
func (f far) Far() bool { return len(f.exports.databases()) > 0 }

// Open implements query.Source.
func (f far) Open() query.Engine {
	list := f.exports.databases()
	if len(list) == 0 { // it left with a reload, since Far was asked
		return (&store.Store{}).Open()
	}
	s := clickhouse.Source{Client: list[0].Client(), Tables: list[0].Tables(), Host: f.host}
	return s.Open()
}

func (a *Agent) historyStatus() *obs.History {
	if a.disk == nil {
		return nil
	}
	s := a.disk.Status()
	return &s
}

// keepHistory writes until ctx ends, then what is left.
func (a *Agent) keepHistory(ctx context.Context) error {
	if a.disk == nil {
		return nil
	}
	if err := a.disk.Run(ctx); err != nil {
		a.log.Error("history: cannot close the files", "error", err)
	}
	return nil
}
