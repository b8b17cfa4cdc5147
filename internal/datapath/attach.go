package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
)

// Target is an interface to attach to.
type Target struct {
	Iface flow.Iface
	// IfIndex and Netns are the index of the interface and the number of its
	// namespace where these are not those in Iface; IfIndex 0: they are.
	IfIndex, Netns uint32

	Name         string // as the kernel knows it, in its namespace
	Place        string // the same for messages, with that of the namespace; empty: Name
	NoLinkHeader bool   // frames begin with the IP header
	// Directions are the hooks that are attached; none: both.
	Directions []flow.Direction
	// Do runs a function on a thread that is in the interface's network
	// namespace; nil: the caller's own.
	Do func(func() error) error
}

// String names the interface in messages.
func (t *Target) String() string { return cmp.Or(t.Place, t.Name) }

// Attach puts the programs that have work there on the hooks of an interface, or
// on none of them.
func (d *Datapath) Attach(t Target) (Mode, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		return "", errClosed
	}
	if len(d.hooks[t.Iface]) > 0 {
		return "", fmt.Errorf("attaching to %s: attached already", t.String())
	}
	if t.IfIndex == 0 {
		t.IfIndex, t.Netns = t.Iface.IfIndex(), t.Iface.Netns()
	}
	if t.Do == nil {
		t.Do = func(f func() error) error { return f() }
	}
	err := t.Do(func() error { return d.attachAll(&t) })
	if err == nil {
		err = d.announce(t.Iface)
	}
	if err != nil {
		return "", errors.Join(err, d.detach(t.Iface))
	}
	return d.mode(t.Iface), nil
}

// attachAll attaches the programs that some stage wants on an interface. The
// caller is in its namespace.
func (d *Datapath) attachAll(t *Target) error {
	for _, p := range d.all {
		at := Hook{p.Hook, t}
		wanted := slices.ContainsFunc(d.stages, func(s *Stage) bool { return s.has(p) && s.Uses != nil && s.Uses(at) })
		if !wanted {
			continue
		}
		h, err := d.attachOne(p, t)
		if err != nil && p.Optional {
			d.log.Info("the interface takes no program at this hook; tc does its work", "interface", t.String(), "hook", p.Hook.String(), "error", err)
			continue
		}
		if err != nil {
			return err
		}
		h.Hook, h.netns = at, t.Netns
		d.hooks[t.Iface] = append(d.hooks[t.Iface], h.inside(t.Do))
	}
	return nil
}

func (d *Datapath) attachOne(p *Program, t *Target) (*hook, error) {
	loaded, err := d.loadFor(p, t)
	if err != nil {
		return nil, err
	}
	h, err := hookTypes[p.Hook].attach(loaded, int(t.IfIndex), how{clsact: d.cfg.Clsact, driverOnly: p.Optional})
	if err != nil {
		return nil, fmt.Errorf("attaching %s to %s %s: %w", p.Name, t.String(), p.Hook, explain(err))
	}
	return h, nil
}

// announce calls the stages for each hook of an interface.
func (d *Datapath) announce(iface flow.Iface) error {
	return d.each(iface, func(s *Stage) func(Hook) error { return s.Attach })
}

// each calls a function of the stages for each hook of an interface at which they run.
func (d *Datapath) each(iface flow.Iface, of func(*Stage) func(Hook) error) error {
	var errs []error
	for _, h := range d.hooks[iface] {
		for _, s := range d.stages {
			if f := of(s); f != nil && slices.ContainsFunc(s.Programs, func(p *Program) bool { return p.Hook == h.Type }) && s.uses(h.Hook) {
				errs = append(errs, f(h.Hook))
			}
		}
	}
	return errors.Join(errs...)
}

// mode is the way in which tc programs are attached to an interface.
func (d *Datapath) mode(iface flow.Iface) Mode {
	for _, h := range d.hooks[iface] {
		if h.Type != XDP {
			return h.mode
		}
	}
	return ""
}

// Modes are the hooks of an interface with the way in which they are attached.
func (d *Datapath) Modes(iface flow.Iface) map[HookType]Mode {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[HookType]Mode{}
	for _, h := range d.hooks[iface] {
		out[h.Type] = h.mode
	}
	return out
}

// Rename has the stages follow the new name of an interface.
func (d *Datapath) Rename(iface flow.Iface, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.hooks[iface] {
		h.Target.Name = name
	}
	return d.announce(iface)
}

// Detach takes the programs off an interface, which may be gone by now. What was
// counted stays until the next drain.
func (d *Datapath) Detach(iface flow.Iface) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.detach(iface)
}

func (d *Datapath) detach(iface flow.Iface) error {
	hooks := d.hooks[iface]
	if len(hooks) == 0 {
		return nil
	}
	var errs []error
	for _, h := range slices.Backward(hooks) { // the first may own what both hang on
		if err := h.close(); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("detaching %s from interface %d: %w", h.Type, iface.IfIndex(), err))
		}
	}
	errs = append(errs, d.each(iface, func(s *Stage) func(Hook) error { return s.Detach }))
	delete(d.hooks, iface)
	// Programs of the agent's own namespace stay, since the privilege to load may
	// be gone by now.
	netns, index := hooks[0].netns, hooks[0].Target.IfIndex
	d.unload(func(v variant) bool {
		return v.netns == netns && (v.device == index || netns != 0 && !d.isOn(netns))
	})
	return errors.Join(errs...)
}

// isOn reports whether any interface of a namespace is attached to.
func (d *Datapath) isOn(netns uint32) bool {
	for _, hooks := range d.hooks {
		if slices.ContainsFunc(hooks, func(h *hook) bool { return h.netns == netns }) {
			return true
		}
	}
	return false
}
