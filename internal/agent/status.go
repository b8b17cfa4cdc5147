package agent

import (
	"os"

	"github.com/waymark-net/waymark/internal/obs"
)

// Status gathers the state of the agent.
func (a *Agent) Status() obs.Status {
	cfg := a.settings()
	a.mu.Lock()
	drain, coverage := a.drain, a.coverage
	a.mu.Unlock()

	s := obs.Status{
		Version: obs.ReadBuild().Version, Host: a.host, PID: os.Getpid(), Started: a.started, Now: a.clock(),
		Probe: a.probe.Name(), Hooks: a.hookStatus(), Interfaces: coverage,
		Totals: a.totals.list(a.ifaceName), Exporters: a.exports.state(),
	}
	table, programs, err := a.probe.Status()
	if err != nil {
		a.log.Debug("reading the probe's status", "error", err)
	}
	s.Table, s.Programs = table, programs
	s.Memory, s.API = a.memoryStatus(), a.server.Stats()
	flows := a.table.Stats()
	s.Table.Live = flows.Live
	s.Table.Shed = flows.Shed
	s.Drain = drain
	s.Drain.Interval = cfg.Flow.ScanInterval
	s.Drain.Deltas, s.Drain.Records = flows.Deltas, flows.Records
	s.Drain.Grace = table.Grace
	s.Losses = a.losses(table)
	s.History = a.historyStatus()
	s.Topology = a.survey.status()
	s.Access = a.console.Status(&cfg.API, s.Now)
	s.Sections = a.sections()
	obs.FillLists(&s)
	return s
}

// hookStatus adds what is configured and is not there, or cannot be watched.
func (a *Agent) hookStatus() []obs.Hook {
	hooks := a.hooks.status()
	ifaces, netns := a.watcher.Waiting()
	if len(hooks) == 0 {
		ifaces = append(ifaces, a.watcher.Unmatched()...)
	}
	for _, name := range ifaces {
		for _, direction := range a.directions(name) {
			hooks = append(hooks, obs.Hook{Iface: name, Direction: direction.String(), State: "waiting"})
		}
	}
	for _, name := range netns {
		hooks = append(hooks, obs.Hook{Netns: name, State: "waiting"})
	}
	for _, e := range a.watcher.Refused() {
		hook := obs.Hook{
			Iface: e.Link.Name, Netns: e.Link.Netns, IfIndex: e.Link.IfIndex, State: "failed", Error: e.Err.Error(),
		}
		if e.Link.Name == "" { // a namespace
			hooks = append(hooks, hook)
			continue
		}
		for _, direction := range a.directions(e.Link.Name) {
			hook.Direction = direction.String()
			hooks = append(hooks, hook)
		}
	}
	return hooks
}

// losses are amounts that are missing somewhere, or reported less exactly than
// wanted; reasons why packets are in no flow stand with their interface.
func (a *Agent) losses(table obs.Table) []obs.Loss {
	var out []obs.Loss
	add := func(where, reason string, n uint64) {
		if n > 0 {
			out = append(out, obs.Loss{Where: where, Reason: reason, Count: n})
		}
	}
	add("kernel table", "ring_full", table.Unattributed)
	add("kernel table", "counts_full", table.CountsFull)
	incomplete, err := a.probe.Incomplete()
	if err != nil {
		a.log.Error("reading the probe's counters", "error", err)
	}
	sums := map[string]uint64{}
	for _, u := range incomplete {
		sums[u.Reason] += u.Packets
	}
	for _, reason := range sortedKeys(sums) {
		add("packets", reason, sums[reason])
	}
	if a.disk != nil {
		counts := a.disk.Status().Counts
		add("history", "not_written_intervals", counts.Lost)
		add("history", "not_written_records", counts.LostRecords)
		add("history", "given_up_records", counts.GivenUp)
		add("history", "damaged_files", counts.Damaged)
		add("history", "torn_bytes", counts.Torn)
	}
	for _, e := range a.exports.state() {
		for _, l := range e.Lost {
			add("exporter "+e.Name, l.Reason, l.Count)
		}
	}
	return out
}
