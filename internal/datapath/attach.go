package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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
	// Early is how the program at XDP is attached; empty: it is not. Set before the programs at tc are chosen.
	Early Mode
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
		return "", ErrClosed
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
	if err := d.equip(&t); err != nil {
		return "", errors.Join(err, d.detach(t.Iface))
	}
	return d.mode(t.Iface), nil
}

// Refresh has all interfaces follow stages that want other hooks than before (Stage.Uses). Programs are replaced between
// two packets.
func (d *Datapath) Refresh() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		return ErrClosed
	}
	var errs []error
	for _, hooks := range d.hooks {
		errs = append(errs, d.equip(hooks[0].Target))
	}
	return errors.Join(errs...)
}

// equip gives an interface the programs that stages want there, and reports to the stages at which hooks they run.
func (d *Datapath) equip(t *Target) error {
	err := t.Do(func() error {
		for _, p := range d.all {
			if err := d.equipHook(p, t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range d.hooks[t.Iface] {
		errs = append(errs, d.notify(h, func(s *Stage) bool { return s.uses(h.Hook) }))
	}
	return errors.Join(errs...)
}

// equipHook attaches the program of a hook, replaces it, or takes it off. The caller is in the interface's namespace.
func (d *Datapath) equipHook(p *Program, t *Target) error {
	at := Hook{p.Hook, t}
	i := slices.IndexFunc(d.hooks[t.Iface], func(h *hook) bool { return h.Type == p.Hook })
	wanted := slices.ContainsFunc(d.stages, func(s *Stage) bool { return s.has(p) && s.Uses != nil && s.Uses(at) })
	if !wanted {
		if i < 0 {
			return nil
		}
		h := d.hooks[t.Iface][i]
		h.noteEarly("")
		d.hooks[t.Iface] = slices.Delete(d.hooks[t.Iface], i, i+1)
		delete(d.pins.names, h)
		return errors.Join(h.close(), d.notify(h, func(*Stage) bool { return false }))
	}
	if i >= 0 {
		return d.replace(p, d.hooks[t.Iface][i])
	}
	if h, err := d.adopt(p, at); h != nil || err != nil {
		return err
	}
	switch err := d.attachOne(p, at); {
	case err == nil && p.Optional: // stages move there before their code leaves other hooks
		h := d.hooks[t.Iface][len(d.hooks[t.Iface])-1]
		return d.notify(h, func(s *Stage) bool { return s.uses(h.Hook) })
	case err != nil && p.Optional:
		d.reportRefusal(at, err)
		return nil
	default:
		return err
	}
}

// reportRefusal logs once why an interface takes no program at a hook.
func (d *Datapath) reportRefusal(at Hook, err error) {
	d.reportOnce(at, "the interface takes no program at this hook; tc does its work", err)
}

// reportUnbound logs once why an interface takes no program that is bound to it.
func (d *Datapath) reportUnbound(at Hook, err error) {
	d.reportOnce(at, "the interface takes no program that is bound to it; hints of its driver are computed", err)
}

func (d *Datapath) reportOnce(at Hook, what string, err error) {
	key := refusal{at.Target.Iface, at.Type, what}
	if d.refusals[key] != err.Error() {
		d.refusals[key] = err.Error()
		d.log.Info(what, "interface", at.Target.String(), "hook", at.Type.String(), "error", err)
	}
}

// refusal is what a hook of an interface does not take.
type refusal struct {
	iface flow.Iface
	hook  HookType
	what  string
}

// replace runs another copy of a program from the next packet on, where stages want other features.
func (d *Datapath) replace(p *Program, h *hook) error {
	loaded, bound, err := d.loadFor(p, h.Target)
	if err != nil || loaded == h.program {
		return err
	}
	if err := h.update(loaded); err != nil {
		return fmt.Errorf("replacing %s on %s %s: %w", p.Name, h.Target.String(), p.Hook, explain(err))
	}
	h.program, h.bound = loaded, bound
	return nil
}

func (d *Datapath) attachOne(p *Program, at Hook) error {
	t := at.Target
	loaded, bound, err := d.loadFor(p, t)
	if err != nil {
		return err
	}
	way := how{clsact: d.cfg.Clsact, driverOnly: p.Optional && !d.anywhere(p, at), bound: bound}
	h, err := hookTypes[p.Hook].attach(loaded, int(t.IfIndex), way)
	if err != nil && bound {
		d.reportUnbound(at, err)
		if loaded, err = d.loadUnbound(p, t, d.variantOf(p, t)); err != nil {
			return err
		}
		way.bound = false
		h, err = hookTypes[p.Hook].attach(loaded, int(t.IfIndex), way)
	}
	if err != nil {
		return fmt.Errorf("attaching %s to %s %s: %w", p.Name, t.String(), p.Hook, explain(err))
	}
	h.Hook, h.netns, h.program, h.bound = at, t.Netns, loaded, way.bound
	h.noteEarly(h.mode)
	h = h.inside(t.Do)
	d.hooks[t.Iface] = append(d.hooks[t.Iface], h)
	d.keepOrEnd(h)
	return nil
}

// noteEarly notes how a program at XDP is attached.
func (h *hook) noteEarly(m Mode) {
	if h.Type == XDP {
		h.Target.Early = m
	}
}

// anywhere reports whether a stage wants an optional program also where the driver does not run it.
func (d *Datapath) anywhere(p *Program, at Hook) bool {
	return slices.ContainsFunc(d.stages, func(s *Stage) bool { return s.has(p) && s.Anywhere != nil && s.Anywhere(at) })
}

// notify calls the stages that begin or cease to run at a hook.
func (d *Datapath) notify(h *hook, runs func(*Stage) bool) error {
	var errs []error
	for _, s := range d.stages {
		if !slices.ContainsFunc(s.Programs, func(p *Program) bool { return p.Hook == h.Type }) {
			continue
		}
		was, will := slices.Contains(h.stages, s), runs(s)
		switch {
		case will && !was:
			h.stages = append(h.stages, s)
			errs = append(errs, call(s.Attach, h.Hook))
		case was && !will:
			h.stages = slices.DeleteFunc(h.stages, func(other *Stage) bool { return other == s })
			errs = append(errs, call(s.Detach, h.Hook))
		}
	}
	return errors.Join(errs...)
}

func call(f func(Hook) error, h Hook) error {
	if f == nil {
		return nil
	}
	return f(h)
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
		if h.bound {
			out[h.Type] = ModeXDPBound
		}
	}
	return out
}

// Rename has the stages follow the new name of an interface, at which others may run.
func (d *Datapath) Rename(iface flow.Iface, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	hooks := d.hooks[iface]
	if len(hooks) == 0 {
		return nil
	}
	var errs []error
	for _, h := range hooks {
		h.Target.Name = name
		for _, s := range h.stages {
			if s.uses(h.Hook) {
				errs = append(errs, call(s.Attach, h.Hook))
			}
		}
	}
	return errors.Join(append(errs, d.equip(hooks[0].Target))...)
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
	netns, index := hooks[0].netns, hooks[0].Target.IfIndex
	var errs []error
	if d.pins.leaving {
		var err error
		hooks, err = d.leaveKept(hooks)
		errs = append(errs, err)
	}
	for _, h := range slices.Backward(hooks) { // the first may own what both hang on
		if err := h.close(); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("detaching %s from interface %d: %w", h.Type, iface.IfIndex(), err))
		}
		delete(d.pins.names, h)
	}
	for _, h := range hooks {
		errs = append(errs, d.notify(h, func(*Stage) bool { return false }))
	}
	delete(d.hooks, iface)
	maps.DeleteFunc(d.refusals, func(r refusal, _ string) bool { return r.iface == iface })
	// Programs of the agent's own namespace stay, since the privilege to load may
	// be gone by now.
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
