package agent

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/disk"
)

// stateDirectory is where the history is without systemd.
const stateDirectory = "/var/lib/waymark"

// historyPath is the directory of the history. systemd sets the variable to one directory, or to
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
	a.store.OnEnd(a.intervalEnded)
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
	a.store.Resume(s.Last())
	a.store.Behind(a.host, s)
	return nil
}

// intervalEnded hands an interval on to all who keep it longer than the memory does.
func (a *Agent) intervalEnded(ended store.Ended) {
	if a.disk != nil {
		a.disk.Append(ended)
	}
	a.exports.interval(ended)
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
