// Package agent is the running Waymark: all wiring of probe, interfaces, flow
// table, exporters, history and API is here. waymark run calls it.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waymark-net/waymark/internal/access"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/memory"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/pipeline"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/disk"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/internal/verdict"
)

// Deps are what an agent is given in addition to its configuration.
type Deps struct {
	Log   *slog.Logger
	Clock flow.Clock
	// Ready is called when programs are loaded, existing interfaces attached, API and
	// exporters up, and privileges dropped; and whenever readiness changes after that.
	// The reason is that of /readyz; nil: everything that is configured is counted.
	Ready func(reason error)
	// DropPrivileges gives up, for the whole process, every capability that is
	// not needed once everything is attached.
	DropPrivileges bool
	// Origins says where the values of the configuration were set.
	Origins config.Origins
	// Profile serves profiles of the agent on the API's socket.
	Profile bool
}

// Agent is one running probe with everything behind it.
type Agent struct {
	cfg     config.Config
	limit   memory.Limit // of the control group; zero: none
	budget  memory.Budget
	log     *slog.Logger
	clock   flow.Clock
	ready   readinessReport
	drop    bool
	profile bool
	origins config.Origins
	host    string
	started time.Time

	watch    topology.Config
	registry *topology.Registry
	watcher  *topology.Watcher
	probe    probe
	table    *flow.Table
	pipeline *pipeline.Pipeline
	store    *store.Store
	disk     *disk.Store     // behind store; nil: records are not kept on disk
	history  *store.Interval // that takes records now; of the table
	wiring   atomic.Pointer[flow.Wiring]
	ledger   *verdict.Ledger
	examiner *verdict.Examiner
	noted    notes
	leaving  *leaving
	server   *api.Server
	survey   *survey
	examined atomic.Pointer[[]kernel.Check] // nil: not yet
	console  *access.Server                 // nil: not configured
	wired    uint64                         // changes of the wiring that the history knows; of drainOnce
	totals   *totals
	hooks    *hooks
	headroom *headroom.Keeper
	stages   *stages
	pace     *pace
	early    *early
	exports  *exporters
	synced   atomic.Bool
	trims    bool      // see trim
	trimmed  time.Time // of scanOnce

	failed  chan error    // the first ends the agent
	control chan func()   // work for the goroutine that drains, between two drains
	stopped chan struct{} // closed when that goroutine has ended

	mu       sync.Mutex // guards cfg, too, which Reload replaces
	drain    obs.Drain
	coverage []obs.Interface // of the last drain
}

// New prepares an agent; nothing is opened, loaded or attached before Run.
func New(cfg config.Config, deps Deps) (*Agent, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name of this host: %w", err)
	}
	a := &Agent{
		cfg: cfg, log: deps.Log, clock: deps.Clock, ready: readinessReport{report: deps.Ready}, drop: deps.DropPrivileges, host: host,
		profile: deps.Profile, origins: deps.Origins, trims: profileOf(&cfg).trims,
		totals: newTotals(), pace: newPace(cfg.Flow.ScanInterval), early: newEarly(), failed: make(chan error, 16),
		control: make(chan func()), stopped: make(chan struct{}), ledger: verdict.NewLedger(),
	}
	if err := a.findBudget(); err != nil {
		return nil, err
	}
	bounded := sized(cfg, &a.budget)
	a.watch = topology.Config{Interfaces: cfg.Patterns(), Exclude: cfg.Exclude, Netns: cfg.Netns, Linger: linger(cfg.Flow)}
	a.registry = topology.NewRegistry(a.watch.Linger, deps.Clock)
	a.watcher, err = topology.New(a.watch, topology.Deps{Registry: a.registry, Emit: a.onEvent, Log: deps.Log})
	if err != nil {
		return nil, err
	}
	a.headroom = newHeadroom(a.registry, deps.Log)
	a.stages, err = newStages(&bounded, stage.Deps{Log: deps.Log, IfaceName: a.ifaceName, Headroom: a.headroom})
	if err != nil {
		return nil, err
	}
	if a.probe, err = newProbe(bounded, a.stages, a.drop, deps.Log); err != nil {
		return nil, err
	}
	a.hooks = newHooks(a.registry, a.probe, &reservations{a.headroom, a.stages.all, deps.Log}, a.directions, deps.Log)
	a.store = store.New(store.Config{History: bounded.API.History})
	a.examiner = a.newExaminer()
	a.store.Behind(host)
	a.pipeline = pipeline.New(pipeline.Default(), nil, deps.Log, deps.Clock)
	a.leaving = &leaving{pipeline: a.pipeline}
	a.exports = &exporters{
		origin: flow.Origin{Host: host, Sampling: cfg.Flow.Sampling}, clock: deps.Clock, log: deps.Log,
		status: a.Status, topology: func() []byte { return a.survey.timeline.Newest() }, pipeline: a.pipeline,
	}
	if err := a.exports.set(bounded.Export); err != nil {
		return nil, err
	}
	return a, nil
}

// linger is how long an interface that is gone must be known by name: until the
// last of its flows is exported.
func linger(f config.Flow) time.Duration {
	return 2*(f.ScanInterval+f.ActiveTimeout+f.IdleTimeout) + time.Minute
}

// Run loads, attaches and counts until ctx ends; then it drains, exports and
// detaches. The error wraps kernel.ErrMissing where a kernel feature or a
// privilege is the reason.
func (a *Agent) Run(ctx context.Context) error {
	a.started = a.clock()
	a.server = a.api()
	server := a.server
	if err := a.listen(server); err != nil {
		return err
	}
	if err := a.load(); err != nil {
		a.unlisten()
		return err
	}
	defer a.probe.Close()

	// Exporters and API outlive the probe: they get the last drain.
	services, stopServices := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServices()
	var serving sync.WaitGroup
	serve := func(run func(context.Context) error) {
		serving.Go(func() {
			if err := run(services); err != nil {
				a.fail(err)
			}
		})
	}
	serve(a.pipeline.Run)
	serve(a.keepHistory)

	// The watcher holds namespaces open that detaching needs: it is ended after.
	probing, stopProbing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopProbing()
	var running sync.WaitGroup
	start := func(ctx context.Context, group *sync.WaitGroup, run func(context.Context) error) {
		group.Go(func() {
			if err := run(ctx); err != nil {
				a.fail(err)
			}
		})
	}
	serve(server.Run)
	serve(a.console.Run)
	a.exports.run(serve)
	if s, ok := a.probe.(flow.Streamer); ok {
		start(probing, &running, func(ctx context.Context) error { return s.Stream(ctx, a.merge) })
	}
	start(probing, &running, a.watcher.Run)
	start(probing, &running, a.runSurvey)
	start(probing, &running, a.examineAhead)
	scanning, stopScanning := context.WithCancel(probing)
	defer stopScanning()
	var scan sync.WaitGroup
	start(scanning, &scan, a.scan)
	start(scanning, &scan, a.tend)

	var err error
	select {
	case err = <-a.failed:
	case <-ctx.Done():
	}
	stopScanning()
	scan.Wait()
	close(a.stopped)
	err = errors.Join(err, a.end())
	stopServices()
	stopProbing()
	running.Wait()
	serving.Wait()
	return err
}

// endPatience is how long flows wait for all hooks to be detached, which takes
// some 15 ms each, one after the other (an RCU grace period of the kernel).
const endPatience = 500 * time.Millisecond

// end detaches, then drains what was counted until then, and exports all flows.
// With very many hooks they leave first, and what is counted meanwhile after them.
func (a *Agent) end() error {
	a.hooks.freeze()
	if p, ok := a.probe.(interface{ Leave() }); ok {
		p.Leave()
	}
	detached := make(chan struct{})
	go func() {
		defer close(detached)
		if n := a.hooks.close(); n > 0 {
			a.log.Info("detached", "interfaces", n)
		}
	}()
	var err error
	select {
	case <-detached:
	case <-time.After(endPatience):
		err = a.drainOnce(true)
		<-detached
	}
	err = errors.Join(err, a.headroom.Restore())
	// Programs that were still running are counted in the next epoch.
	err = errors.Join(err, a.probe.Drain(a.merge))
	return errors.Join(err, a.drainOnce(true), a.stages.stop())
}

// load prepares the probe and, as large as it, the table behind it.
func (a *Agent) load() error {
	if len(a.cfg.Netns) > 0 {
		if err := kernel.RequireNetns(); err != nil {
			return err
		}
	}
	if err := a.checkFiles(); err != nil {
		return err
	}
	a.recoverHeadroom()
	if err := a.probe.Load(); err != nil {
		return err
	}
	if err := a.stages.start(); err != nil {
		a.probe.Close()
		return err
	}
	if err := a.openHistory(); err != nil {
		a.probe.Close()
		return err
	}
	a.openSurvey()
	a.history = a.store.Begin(a.started)
	a.table = flow.NewTable(flow.TableConfig{
		MaxFlows: int(a.budget.Count(shareTable)), ActiveTimeout: a.cfg.Flow.ActiveTimeout, IdleTimeout: a.cfg.Flow.IdleTimeout,
		IfIndex: a.registry.IfIndex,
	}, a.ifaceName, flow.TableOutput{
		Interval: func(r *flow.Record) { a.history.Add(r) },
		Ended:    a.nextInterval,
		Expired:  a.leaving.add,
		Piece:    a.leaving.publish,
	})
	return nil
}

// fail ends the agent with an error.
func (a *Agent) fail(err error) {
	select {
	case a.failed <- err:
	default: // one is enough
	}
}

// ifaceName is the name of an interface, which may be gone, and of its namespace.
func (a *Agent) ifaceName(i flow.Iface) (name, netns string) {
	if l, ok := a.registry.Link(i); ok {
		return l.Name, l.Netns
	}
	return fmt.Sprintf("if%d", a.registry.IfIndex(i)), ""
}
