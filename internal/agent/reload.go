package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/topology"
)

// settings is the effective configuration.
func (a *Agent) settings() config.Config {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cfg
}

// configuration is what the API shows of the settings.
func (a *Agent) configuration() (api.Configuration, error) {
	a.mu.Lock()
	cfg, origins := a.cfg, a.origins
	a.mu.Unlock()
	var b strings.Builder
	if err := config.Dump(&b, cfg, nil); err != nil {
		return api.Configuration{}, err
	}
	out := api.Configuration{YAML: b.String(), Elsewhere: map[string]string{}}
	for key, where := range origins {
		if origins.Elsewhere(key) {
			out.Elsewhere[key] = where
		}
	}
	return out, nil
}

// directions are those in which an interface of that name is counted.
func (a *Agent) directions(name string) []flow.Direction {
	cfg := a.settings()
	return cfg.Directions(name)
}

// patterns are the names and globs of interfaces to attach to.
func (a *Agent) patterns() []string {
	cfg := a.settings()
	return cfg.Patterns()
}

// Reopen makes file exporters open their files again, after log rotation.
func (a *Agent) Reopen() { a.exports.Reopen() }

var errNotRunning = errors.New("the agent does not run yet, or no more")

// Reload applies what of the next configuration can change at run time, between
// two drains, so that no packet is lost. applied are the keys that changed,
// restart those that need a restart. With an error nothing has changed.
func (a *Agent) Reload(next config.Config, origins config.Origins) (applied, restart []config.Change, err error) {
	done := make(chan struct{})
	work := func() {
		defer close(done)
		applied, restart, err = a.reload(next, origins)
	}
	select {
	case a.control <- work:
		<-done
		return applied, restart, err
	case <-a.stopped:
		return nil, nil, errNotRunning
	}
}

// reload runs in the goroutine that drains.
func (a *Agent) reload(next config.Config, origins config.Origins) (applied, restart []config.Change, err error) {
	running := a.settings()
	merged := config.Reloaded(running, next)
	settle(&running, &merged)
	applied, restart = config.Changes(running, merged), config.Changes(merged, next)
	changed := func(key string) bool {
		return slices.ContainsFunc(applied, func(c config.Change) bool { return c.Key == key })
	}

	// What can fail comes first.
	restage, err := a.stages.reload(&merged, applied)
	if err != nil {
		return nil, nil, err
	}
	readmit, err := a.console.Prepare(&merged)
	if err != nil {
		return nil, nil, fmt.Errorf("reload %w", err)
	}
	watch := topology.Config{Interfaces: merged.Patterns(), Exclude: merged.Exclude}
	if err := watch.Validate(); err != nil {
		return nil, nil, fmt.Errorf("reload interfaces: %w", err)
	}
	before := a.exports.entries()
	if changed("export") {
		budget, err := Plan(merged, a.budget.Limit)
		if err == nil {
			bounded := sized(merged, &budget)
			err = a.exports.set(bounded.Export)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reload export: %w", err)
		}
	}
	if restage != nil {
		if err := restage(); err != nil {
			return nil, nil, errors.Join(err, a.exports.set(before))
		}
	}
	readmit()
	a.mu.Lock()
	a.cfg, a.origins = merged, origins
	a.mu.Unlock()
	a.pace.set(merged.Flow.ScanInterval)
	a.table.SetTimeouts(merged.Flow.ActiveTimeout, merged.Flow.IdleTimeout)
	a.registry.SetLinger(linger(merged.Flow))
	if changed("interfaces") || changed("exclude") || restage != nil { // MTU headroom follows
		a.watcher.Match(watch.Interfaces, watch.Exclude)
	}
	return applied, restart, nil
}
