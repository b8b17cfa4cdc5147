package datapath

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
)

// Stage is a part of the programs with maps of its own. The core loads,
// attaches and drains stages without knowing any by name. A nil function means
// that there is nothing to do.
type Stage struct {
	Name string
	// Programs are those that contain the stage's code.
	Programs []*Program
	// Maps are those that the stage owns: it alone uses them in user space.
	Maps []string
	// Feature is the bit of enum feature that enables the stage; 0: it has none.
	Feature uint32

	// Check reports what makes the stage impossible: an invalid configuration, or
	// a missing kernel feature.
	Check func() error
	// Set sets the stage's map sizes and constants in an object that contains one
	// of its programs, before it is loaded.
	Set func(*Spec) error
	// Open is called once, when the maps exist and no program is loaded yet.
	Open func(*Core) error

	// Uses reports whether the stage has work at a hook of an interface. Nil:
	// wherever another stage has one of its programs attached.
	Uses func(Hook) bool
	// Anywhere reports whether the stage wants a program at XDP also where the driver does not run it and the kernel does
	// for each skb. Nil: tc does its work there.
	Anywhere func(Hook) bool
	// Bound reports whether the stage wants a copy of its program that is bound to the interface, which may call its
	// driver. Where the kernel or the driver refuses one, the interface gets another. Nil: it does not.
	Bound func(Hook) bool
	// Pins is a directory of a bpf file system, which outlives the agent. Empty: everything ends with it.
	Pins string
	// Keeps reports whether the program at a hook where the stage has work stays there without the agent, until another
	// one takes it over. Nil: none does, and what an agent before has left in Pins is taken over only.
	Keeps func(Hook) bool
	// Attach is called for each hook after the programs of an interface are
	// attached, and again when the interface has another name.
	Attach func(Hook) error
	// Detach is called for each hook after the programs of an interface, which may
	// be gone, were detached. What was counted stays until the next drain.
	Detach func(Hook) error

	// Explain reads what the stage noted of a frame in a dry run; nil: the frame did not come to it.
	Explain func(Hook, *Dry) *Decision

	// Drain emits what an epoch counted that no program uses anymore.
	Drain func(Epoch, func(*flow.Delta)) error
	// Forget drops the running totals of an interface that is gone and drained.
	Forget func(flow.Iface) error
	// Close is called once, after everything is detached.
	Close func()
}

// Hook is a place of an interface where a program runs.
type Hook struct {
	Type   HookType
	Target *Target
}

// bound reports whether the stage wants a copy that is bound to the interface.
func (s *Stage) bound(p *Program, h Hook) bool {
	return s.has(p) && s.Bound != nil && s.uses(h) && s.Bound(h)
}

// Epoch is a half of the maps that no program uses anymore.
type Epoch struct {
	Number uint32
	At     Moment // shortly after it ended
}

// has reports whether the stage's code is in a program.
func (s *Stage) has(p *Program) bool { return slices.Contains(s.Programs, p) }

// uses reports whether the stage runs at a hook of a program that is attached.
func (s *Stage) uses(h Hook) bool { return s.Uses == nil || s.Uses(h) }

// Core is what a stage is given of the datapath.
type Core struct{ d *Datapath }

// Map is a map by its name in C.
func (c *Core) Map(name string) (*ebpf.Map, error) {
	m := c.d.maps[name]
	if m == nil {
		return nil, fmt.Errorf("no object has the map %s", name)
	}
	return m, nil
}

// Maps are several maps by name.
func (c *Core) Maps(names ...string) (map[string]*ebpf.Map, error) {
	out := make(map[string]*ebpf.Map, len(names))
	for _, name := range names {
		m, err := c.Map(name)
		if err != nil {
			return nil, err
		}
		out[name] = m
	}
	return out, nil
}

// Do runs f while the datapath neither attaches, drains nor closes.
func (c *Core) Do(f func() error) error {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if !c.d.open {
		return ErrClosed
	}
	return f()
}

// Refresh has all interfaces follow stages that want other hooks than before. The caller isn't in Do.
func (c *Core) Refresh() error { return c.d.Refresh() }

// Pins is the directory of Stage.Pins, if it is there and no other agent has it; empty: none.
func (c *Core) Pins() string { return c.d.pins.dir }

// Keeps reports whether a program of this agent stays on an interface without it.
func (c *Core) Keeps() bool {
	for _, hooks := range c.d.hooks {
		if slices.ContainsFunc(hooks, func(h *hook) bool { return h.kept }) {
			return true
		}
	}
	return false
}

// Claimed reports whether no program of an agent before runs any more.
func (c *Core) Claimed() bool { return c.d.pins.claimed }

// Wait returns when no program uses anymore what it could reach at the call. The
// caller is in Do, or in a function of its stage.
func (c *Core) Wait() error { return c.d.grace.Wait() }

// Ticks maps the ticks of the kernel's timer, by which programs stamp packets, to wall time as it is now. A packet came up to
// spread ms later.
func (c *Core) Ticks() (wall func(stamp uint32) int64, spread uint8, err error) {
	now, err := c.d.ticks.read()
	if err != nil {
		return nil, 0, err
	}
	return now.wall, now.spread(), nil
}

// checkStages reports stages that cannot run, and maps that two of them claim.
func (d *Datapath) checkStages() error {
	owner := map[string]string{}
	for _, s := range d.stages {
		if s.Check != nil {
			if err := s.Check(); err != nil {
				return err
			}
		}
		for _, name := range s.Maps {
			if other, taken := owner[name]; taken {
				return fmt.Errorf("stages %s and %s both own the map %s", other, s.Name, name)
			}
			owner[name] = s.Name
		}
	}
	return nil
}

// openStages hands the maps to the stages, after checking that those they own exist.
func (d *Datapath) openStages() error {
	core := &Core{d}
	for _, s := range d.stages {
		if _, err := core.Maps(s.Maps...); err != nil {
			return fmt.Errorf("stage %s: %w", s.Name, err)
		}
		if s.Open == nil {
			continue
		}
		if err := s.Open(core); err != nil {
			return fmt.Errorf("stage %s: %w", s.Name, err)
		}
	}
	return nil
}
