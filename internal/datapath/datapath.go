// Package datapath is the part of the kernel that user space sees: a core that
// loads the programs of bpf/, attaches them to interfaces, turns epochs and
// drains; and the flow cache. Other stages register through Config.Stages.
// Input: interfaces. Output: flow deltas and counts by reason. The agent calls it
// through flow.Probe.
package datapath

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
)

// Config sizes the flow cache and names the further stages.
type Config struct {
	MaxEntries uint32        // flows in one epoch; 0: DefaultMaxEntries()
	RingSize   uint32        // bytes, a power of two of whole pages
	Sampling   uint32        // one packet in so many is counted; 0 or 1: all
	Tunnels    []flow.Tunnel // whose inner flows are counted
	Clsact     bool          // even where the kernel has TCX
	Stages     []*Stage      // in addition to the flow cache
	WholeTable bool          // the flow table has its full size from the start
	WalkOnly   bool          // GSO frames are measured by their content, even where the kernel can be asked
	LinkHeader bool          // all interfaces have one: Load loads no copies for others
}

// Default is the configuration of an agent without any.
func Default() Config {
	return Config{MaxEntries: DefaultMaxEntries(), RingSize: 4 << 20, Sampling: 1}
}

// Datapath is the core. Its methods may be called from any goroutine.
type Datapath struct {
	*flowCache
	cfg    Config
	log    *slog.Logger
	stages []*Stage   // the flow cache first
	all    []*Program // of the stages

	maps  map[string]*ebpf.Map
	grace *kernel.Grace
	// dryKey is what programs know frames by that this agent has made up, see DryRun.
	dryKey uint64

	mu       sync.Mutex // everything below, and the flow cache
	open     bool
	loaded   map[copyOf]*ebpf.Program
	parsed   map[string]*ebpf.CollectionSpec // objects, until Synced; nil otherwise
	hooks    map[flow.Iface][]*hook
	refusals map[refusal]string // reported, with their reasons
	pins     pins
}

// New returns a datapath that has loaded nothing yet.
func New(cfg Config, log *slog.Logger) *Datapath {
	cache := newFlowCache(cfg, log)
	own := []*Stage{cache.stage(), cache.countStage(cfg.Stages)}
	if slices.Contains(programs(cfg.Stages), Early) {
		own = append(own, cache.earlyStage())
	}
	d := &Datapath{
		flowCache: cache,
		cfg:       cfg, log: log,
		stages:   append(own, cfg.Stages...),
		maps:     map[string]*ebpf.Map{},
		loaded:   map[copyOf]*ebpf.Program{},
		hooks:    map[flow.Iface][]*hook{},
		refusals: map[refusal]string{},
		dryKey:   newDryKey(),
	}
	d.all = programs(d.stages)
	return d
}

// Load makes the maps, and the programs for the agent's own namespace. The error
// wraps kernel.ErrMissing where the kernel or a privilege is the reason.
func (d *Datapath) Load() error { return d.start(d.loadAhead) }

// Open is Load without programs. Each is loaded when it is first attached, and
// the caller still needs the privilege then.
func (d *Datapath) Open() error { return d.start(func() error { return nil }) }

func (d *Datapath) start(load func() error) (err error) {
	if err := kernel.Require(); err != nil {
		return err
	}
	if err := d.checkStages(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parsed = map[string]*ebpf.CollectionSpec{}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if err := d.makeAll(); err != nil {
		return err
	}
	d.open = true
	return load()
}

// makeAll makes what programs need: maps, grace periods, stages.
func (d *Datapath) makeAll() (err error) {
	if err := d.openPins(); err != nil {
		return err
	}
	if err := d.makeMaps(); err != nil {
		return err
	}
	if d.grace, err = kernel.NewGrace(); err != nil {
		return err
	}
	return d.openStages()
}

// Close detaches from all interfaces and frees programs and maps.
func (d *Datapath) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.close()
}

func (d *Datapath) close() {
	d.pins.leaving = true
	defer d.pins.close()
	for iface := range d.hooks {
		_ = d.detach(iface) // the links end with this process in any case
	}
	d.open = false
	d.unload(func(variant) bool { return true })
	for _, s := range d.stages {
		if s.Close != nil {
			s.Close()
		}
	}
	if d.grace != nil {
		d.grace.Close()
	}
	for name, m := range d.maps {
		m.Close()
		delete(d.maps, name)
	}
}
