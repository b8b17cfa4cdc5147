package agent

import (
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/memory"
	"github.com/waymark-net/waymark/internal/topology"
)

// onEvent follows the interfaces. The watcher calls it from one goroutine.
func (a *Agent) onEvent(e topology.Event) {
	defer a.ready.changed.Store(true)
	switch e.Kind {
	case topology.Added:
		a.addHooks(e.Link)
	case topology.Removed:
		a.hooks.remove(e.Link, e.Gone)
	case topology.Renamed:
		a.fitHooks(e.Link)
	case topology.Matched:
		for _, l := range a.hooks.links() {
			a.fitHooks(l)
		}
	case topology.Refused:
		a.log.Error("cannot be watched", "what", e.Link.String(), "error", e.Err)
	case topology.Synced:
		a.onSynced()
	}
}

// fitHooks has the hooks of an interface follow its name and the configuration.
func (a *Agent) fitHooks(l topology.Link) {
	if !a.hooks.rename(l) {
		a.addHooks(l)
	}
}

func (a *Agent) addHooks(l topology.Link) {
	all, err := a.seenBy()
	if err != nil {
		a.log.Warn("coverage of an interface starts inexact", "iface", l.String(), "error", err)
	}
	a.hooks.add(l, all)
}

// onSynced: every interface of the start is attached.
func (a *Agent) onSynced() {
	if p, ok := a.probe.(interface{ Synced() }); ok {
		p.Synced()
	}
	if missing := a.missing(); len(missing) > 0 {
		if a.settings().OnMissing == "fail" {
			a.fail(fmt.Errorf("no such interface or namespace: %s: create it, or set on_missing: wait", strings.Join(missing, ", ")))
			return
		}
		a.log.Warn("waiting for interfaces that don't exist yet", "names", missing)
	}
	if globs := a.watcher.Unmatched(); len(globs) > 0 {
		if a.settings().OnMissing == "fail" && a.hooks.none() {
			a.fail(fmt.Errorf("no interface matches %s: create one, or set on_missing: wait", strings.Join(a.patterns(), ", ")))
			return
		}
		a.log.Warn("no interface matches yet; waiting for one", "patterns", globs)
	}
	if err := a.hooks.allFailed(); err != nil {
		a.fail(err)
		return
	}
	a.examine()
	if a.drop {
		if err := dropPrivileges(a.needs()); err != nil {
			a.fail(err)
			return
		}
	}
	a.synced.Store(true)
	close(a.early.synced)
	a.reportReadiness()
	a.releaseStart()
}

// releaseStart gives back the memory that only the start took: type information
// of the kernel, the programs' objects and the verifier's log; and code.
func (a *Agent) releaseStart() {
	debug.FreeOSMemory()
	if err := memory.MapSingly(); err != nil {
		a.log.Debug("code is mapped 16 pages at a time", "error", err)
	}
	if err := memory.ReleaseProgram(); err != nil {
		a.log.Debug("memory of the start is kept", "error", err)
	}
}

// trimEvery is how often a small agent gives back code at most; it takes a millisecond.
const trimEvery = time.Second

// trim gives back, for a small agent, code that a drain or a question ran: the pages that are not
// needed for some time are half of what it has.
func (a *Agent) trim() {
	if !a.trims || !a.synced.Load() || time.Since(a.trimmed) < trimEvery {
		return
	}
	a.trimmed = time.Now()
	if err := memory.ReleaseProgram(); err != nil {
		a.log.Debug("code that does not run stays in memory", "error", err)
	}
}

func (a *Agent) missing() []string {
	ifaces, netns := a.watcher.Waiting()
	return append(ifaces, netns...)
}
