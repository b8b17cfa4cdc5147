// Package gate applies packet rules in the kernel, as a stage of the datapath: it fills the
// maps of bpf/gate. Input: a rules.Ruleset, and the interfaces that the datapath attaches.
// Output: verdicts at XDP, or at tc ingress where XDP cannot attach, and counters by rule.
// The agent registers it through package service.
package gate

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/internal/kernel"
)

// Mode is where packets meet the rules.
type Mode string

// The modes. Where an interface takes no program at XDP, tc ingress does the work in all of
// them.
const (
	ModeAuto    Mode = "auto"    // XDP in the driver, but not on veth: its peer would segment all packets before it sends them
	ModeNative  Mode = "native"  // XDP in the driver
	ModeGeneric Mode = "generic" // XDP in the driver, or behind it
	ModeTC      Mode = "tc"
)

// Config is what only a restart changes.
type Config struct {
	Mode        Mode
	Tables      engine.Limits // of each of two copies
	Sources     uint32        // token buckets of limits per source
	CaptureRate uint32        // packets per second that are captured at most
	Dropped     uint32        // flows of dropped packets that are kept apart in an epoch, over all processors
	// Bound reports whether the driver of an interface shows programs at XDP the VLAN tags that are not in frames; nil:
	// none does.
	Bound func(datapath.Hook) bool
	// AtXDP reports whether packets of an interface must meet the rules at XDP, since others go no further; nil: none must.
	AtXDP func(iface string) bool
	Bans  uint32 // at a time
	Pins  string // directory of a bpf file system for what outlives the agent
	Keep  bool   // rules stay in effect without the agent
}

// Default is room for 100,000 IPv4 addresses or 70,000 of IPv6.
func Default() Config {
	return Config{
		Mode: ModeAuto, Tables: engine.Limits{Lines: 1 << 17, Rules: 4096, Pages: 1024}, Sources: 1 << 16, Bans: 1 << 14, Dropped: 1 << 13,
		CaptureRate: 10000,
	}
}

// mapNames are the maps that the stage owns.
var mapNames = []string{
	"gate_lines", "gate_rows", "gate_pages", "gate_rules", "gate_counts", "gate_buckets", "gate_sources", ".data.gate",
	"gate_bans", "gate_ban_counts", ".data.gateban", "gate_cookie_counts", "gate_local",
	"gate_sketch", "gate_watches", "gate_candidates",
	"gate_drops", "gate_drop_parts", "gate_rings", "gate_captures",
}

// sourceWays are the buckets in an element of gate_sources.
const sourceWays = 4

// Gate is the gate of one datapath. Its methods may be called from any goroutine.
type Gate struct {
	cfg  Config
	log  *slog.Logger
	cpus uint32

	early     sync.Map    // flow.Iface: whether XDP is wanted
	saysFlows atomic.Bool // rules say which packets have flow records

	applying sync.Mutex     // held while rules are replaced; below: guarded by it
	rules    *rules.Ruleset // as applied, with what has ended since
	which    uint32         // copy of the tables that programs use

	expiry struct { // of what has an end
		sync.Mutex
		timer  *time.Timer
		closed bool
	}

	core *datapath.Core // nil: not loaded yet; below: guarded by it
	maps map[string]*ebpf.Map
	// control is what the programs see.
	control engine.Control
	table   *engine.Table
	written written           // of it, to the maps
	slots   map[uint32]uint16 // of counters, by rule
	free    []uint16
	leaving []uint16 // of removed rules: a program is going to count for them what it remembers
	gone    Counts   // of rules that were removed, less what is in leaving
	base    Amounts  // of agents before
	formers []*former
	// attachedBefore: a program of theirs was on an interface at the start.
	attachedBefore bool

	pins    string // directory for what outlives the agent; empty: there is none
	kept    bool   // what counts on is pinned there
	settled bool
	ifaces  map[flow.Iface]Place
	rates   rates
	bans    bans
	cookies bool // rules answer SYNs
	local   map[abiGateLocalKey]bool
	detect  []*rules.Rule // in front of all others
	dropped drops
	capture capture // guards itself

	onSettled func()
}

// Place is where packets of an interface meet the rules.
type Place struct {
	Iface flow.Iface
	Name  string
	Hook  string // xdp, xdp-generic or tc
	Why   string // not XDP, where that was wanted
	hooks uint8  // the same as Hook, for the programs

	sends   bool  // the hook can answer SYNs
	answers uint8 // what answers say
	do      func(func() error) error
}

// New returns a gate that has loaded nothing yet. Without rules all packets pass.
func New(cfg Config, log *slog.Logger) *Gate {
	g := &Gate{cfg: cfg, log: log, rules: &rules.Ruleset{}, slots: map[uint32]uint16{}, ifaces: map[flow.Iface]Place{}, local: map[abiGateLocalKey]bool{}}
	g.bans.init(cfg.Bans)
	return g
}

// Stage registers the gate in the datapath. names reports whether the packets of an
// interface meet the rules.
func (g *Gate) Stage(names func(string) bool) *datapath.Stage {
	s := &datapath.Stage{
		Name:     "gate",
		Programs: []*datapath.Program{datapath.Ingress, datapath.Egress, datapath.Early}, // at egress only the maps are
		Maps:     mapNames,
		Feature:  uint32(engine.Feature),
		Check:    g.check,
		Set:      g.set,
		Open:     g.open,
		Uses:     func(h datapath.Hook) bool { return names(h.Target.Name) && g.uses(h) },
		Bound:    g.bound,
		Pins:     g.cfg.Pins,
		Keeps:    g.keeps(),
		Attach:   g.attached,
		Detach:   g.detached,
		Drain: func(e datapath.Epoch, emit func(*flow.Delta)) error {
			return errors.Join(g.settle(), g.sample(time.Now()), g.dropped.drain(g, e.Number, emit), g.unbanEnded(time.Now()), g.refreshCookies())
		},
		Forget: g.forget,
		Close:  g.close,
	}
	if g.cfg.Mode == ModeGeneric {
		s.Anywhere = func(h datapath.Hook) bool { return names(h.Target.Name) }
	}
	return s
}

// uses reports whether the gate has work at a hook: at tc ingress where it has none at XDP, or where rules say what is
// counted there.
func (g *Gate) uses(h datapath.Hook) bool {
	if h.Type == datapath.XDP {
		return g.wantsXDP(h.Target)
	}
	return h.Type == datapath.TCIngress && (g.saysFlows.Load() || !g.isEarly(h.Target))
}

// bound reports whether the program at XDP asks the driver for VLAN tags.
func (g *Gate) bound(h datapath.Hook) bool {
	return h.Type == datapath.XDP && g.cfg.Bound != nil && g.cfg.Bound(h)
}

// keeps reports where rules stay in effect without the agent; nil: nowhere.
func (g *Gate) keeps() func(datapath.Hook) bool {
	if !g.cfg.Keep {
		return nil
	}
	return func(h datapath.Hook) bool { return h.Type == datapath.XDP || !g.isEarly(h.Target) }
}

// isEarly reports whether packets meet the rules at XDP.
func (g *Gate) isEarly(t *datapath.Target) bool { return t.Early != "" && g.wantsXDP(t) }

func (g *Gate) wantsXDP(t *datapath.Target) bool {
	if g.cfg.AtXDP != nil && g.cfg.AtXDP(t.Name) {
		return true
	}
	if g.cfg.Mode != ModeAuto {
		return g.cfg.Mode != ModeTC
	}
	// Asked in the namespace of the interface first, and then anywhere.
	if known, ok := g.early.Load(t.Iface); ok {
		return known.(bool)
	}
	l, err := netlink.LinkByName(t.Name)
	wanted := err == nil && l.Type() != "veth"
	g.early.Store(t.Iface, wanted)
	return wanted
}

func (g *Gate) forget(i flow.Iface) error {
	g.early.Delete(i)
	return nil
}

// check finds out how many processors count.
func (g *Gate) check() error {
	n, err := kernel.CPUs("online")
	g.cpus = uint32(n)
	for slot := g.slotCount(); slot > uint32(engine.FirstSlot); slot-- {
		g.free = append(g.free, uint16(slot-1))
	}
	return err
}

// set sets sizes and constants.
func (g *Gate) set(s *datapath.Spec) error {
	t := g.cfg.Tables
	lines := uint32(1) << bits.Len32((g.cfg.Sources-1)/sourceWays)
	if err := s.SetSizes(map[string]uint32{
		"gate_lines": engine.Copies * t.Lines, "gate_rows": engine.Copies * engine.MaxRows, "gate_pages": engine.Copies * t.Pages,
		"gate_rules": engine.Copies * t.Rules, "gate_counts": (g.cpus + 1) * g.slotCount(), "gate_buckets": g.slotCount(),
		"gate_sources": lines, "gate_bans": max(g.cfg.Bans, 1), "gate_ban_counts": max(g.cfg.Bans, 1),
		"gate_sketch": sketchSize,
		"gate_drops":  2 * g.cpus * g.dropSets(), "gate_drop_parts": 2 * g.cpus,
	}); err != nil {
		return err
	}
	at := kernel.SocketOffsets()
	return s.SetConstants(map[string]any{
		"cfg_gate_cpus": g.cpus, "cfg_gate_slots": g.slotCount(), "cfg_gate_source_mask": lines - 1, "cfg_gate_drop_sets": g.dropSets(),
		"cfg_gate_sock": abiGateSockOffsets{Locks: at.Locks, Shift: at.Shift, Clamp: at.Clamp},
	})
}

// open gets the maps.
func (g *Gate) open(c *datapath.Core) (err error) {
	if g.maps, err = c.Maps(mapNames...); err != nil {
		return err
	}
	g.control.Keys = randomKeys()
	if g.table, err = engine.Compile(&rules.Ruleset{}, g.options(0, time.Now())); err != nil {
		return err
	}
	if err := g.dropped.open(g.maps["gate_drops"], g.maps["gate_drop_parts"]); err != nil {
		return err
	}
	g.pins = c.Pins()
	g.findFormers()
	g.core = c
	if err := g.maps[".data.gateban"].Put(uint32(0), &g.bans.control); err != nil {
		return fmt.Errorf("preparing bans: %w", err)
	}
	return g.publish(&g.control)
}

func (g *Gate) close() {
	g.dropped.close()
	for _, f := range g.formers {
		f.close()
	}
	g.expiry.Lock()
	defer g.expiry.Unlock()
	g.expiry.closed = true
	if g.expiry.timer != nil {
		g.expiry.timer.Stop()
	}
}

// errNotLoaded is what callers get before the datapath is loaded.
var errNotLoaded = errors.New("gate: the datapath is not loaded")

func (g *Gate) do(f func() error) error {
	if g.core == nil {
		return errNotLoaded
	}
	return g.core.Do(f)
}

// attached has packets of an interface meet the rules, or follows its new name.
func (g *Gate) attached(h datapath.Hook) error {
	if h.Type == datapath.TCIngress && g.isEarly(h.Target) {
		return nil
	}
	if err := g.keepMaps(); err != nil {
		return err
	}
	return g.enter(g.place(h))
}

// enter has packets of an interface meet the rules at a place.
func (g *Gate) enter(p Place) error {
	next := g.control
	if err := g.table.AddIface(&next, uint32(p.Iface), p.Name, p.hooks, p.answers); err != nil {
		return fmt.Errorf("gate of %s: %w", p.Name, err)
	}
	// A name may need a row that no other has.
	done, err := g.writeRows(g.table, g.written)
	if err != nil {
		return fmt.Errorf("gate of %s: %w", p.Name, err)
	}
	g.written = done
	g.ifaces[p.Iface] = p
	if err := g.change(&next); err != nil {
		return err
	}
	if err := g.refreshCookies(); err != nil { // SYNs pass until the next drain
		g.log.Warn("gate: SYNs are not answered yet", "interface", p.Name, "error", err)
	}
	return nil
}

// place says where packets of an interface meet the rules, and why there.
func (g *Gate) place(h datapath.Hook) Place {
	p := Place{Iface: h.Target.Iface, Name: h.Target.Name, Hook: "tc", hooks: engine.HookTC, sends: true, do: h.Target.Do}
	switch {
	case h.Type == datapath.XDP:
		p.Hook, p.hooks = string(h.Target.Early), engine.HookXDP
		_ = h.Target.Do(func() error { // a missing interface sends nothing
			p.sends = h.Target.Early == datapath.ModeXDPGeneric || sends(h.Target.Name)
			return nil
		})
	case g.wantsXDP(h.Target):
		p.Why = "no program could be attached at XDP; the log of the agent says why"
		_ = h.Target.Do(func() error { // a missing interface has no program
			if l, err := netlink.LinkByName(h.Target.Name); err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached {
				p.Why = fmt.Sprintf("XDP has another program (%s), which is left alone", programName(l.Attrs().Xdp.ProgId))
			}
			return nil
		})
	}
	return p
}

// programName is the name of a program, as far as the kernel says it.
func programName(id uint32) string {
	text := fmt.Sprintf("id %d", id)
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil { // takes CAP_SYS_ADMIN
		return text
	}
	defer p.Close()
	if info, err := p.Info(); err == nil && info.Name != "" {
		text = info.Name + ", " + text
	}
	return text
}

// detached leaves an interface out, unless its other hook goes on.
func (g *Gate) detached(h datapath.Hook) error {
	if h.Type == datapath.TCIngress && h.Target.Early != "" {
		return nil
	}
	delete(g.ifaces, h.Target.Iface)
	next := g.control
	engine.RemoveIface(&next, uint32(h.Target.Iface))
	return g.change(&next)
}

// Places are the interfaces whose packets meet the rules.
func (g *Gate) Places() (list []Place, err error) {
	err = g.do(func() error {
		list = slices.Collect(maps.Values(g.ifaces))
		return nil
	})
	slices.SortFunc(list, func(a, b Place) int { return cmp.Compare(a.Iface, b.Iface) })
	return list, err
}
