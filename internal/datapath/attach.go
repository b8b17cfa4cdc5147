package datapath

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
)

// Target is an interface to attach to.
type Target struct {
	Iface flow.Iface
	// IfIndex and Netns are the index of the interface and the number of its
	// namespace where these are not those in Iface; IfIndex 0: they are.
	IfIndex, Netns uint32

	Name         string
	NoLinkHeader bool // frames begin with the IP header
	// Directions are the hooks that are attached; none: both.
	Directions []flow.Direction
	// Do runs a function on a thread that is in the interface's network
	// namespace; nil: the caller's own.
	Do func(func() error) error
}

// hook is one program on one interface.
type hook struct {
	direction flow.Direction
	netns     uint32 // number of its namespace
	close     func() error
	ahead     func() ([]string, error) // programs of others that run before
}

// Mode is the way a program hangs on an interface.
type Mode string

// The two ways of tc.
const (
	ModeTCX    Mode = "tcx"
	ModeClsact Mode = "clsact"
)

// Attach puts the probe on the directions of an interface that are asked for, or
// on none of them.
func (d *Datapath) Attach(t Target) (Mode, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.table == nil {
		return "", errClosed
	}
	if len(d.hooks[t.Iface]) > 0 {
		return "", fmt.Errorf("attaching to %s: attached already", t.Name)
	}
	if t.IfIndex == 0 {
		t.IfIndex, t.Netns = t.Iface.IfIndex(), t.Iface.Netns()
	}
	v := variantOf(&t)
	p, err := d.variant(v)
	if err != nil && t.IfIndex != t.Iface.IfIndex() && v.netns == 0 {
		return "", fmt.Errorf("attaching to %s: index %d takes programs of its own, which the agent cannot load any more: restart it, or start it with --keep-privileges: %w", t.Name, t.IfIndex, err)
	}
	if err != nil {
		return "", err
	}
	mode, attach := ModeTCX, attachTCX
	if d.cfg.Clsact || !kernel.TCX.Has() {
		mode, attach = ModeClsact, attachClsact
	}
	do := t.Do
	if do == nil {
		do = func(f func() error) error { return f() }
	}
	err = do(func() error {
		for _, side := range []struct {
			direction flow.Direction
			program   *ebpf.Program
		}{{flow.Ingress, p.ingress}, {flow.Egress, p.egress}} {
			if len(t.Directions) > 0 && !slices.Contains(t.Directions, side.direction) {
				continue
			}
			h, err := attach(int(t.IfIndex), side.direction, side.program)
			if err != nil {
				return fmt.Errorf("attaching to %s %s by %s: %w", t.Name, directionName(side.direction), mode, explain(err))
			}
			h = h.inside(do, mode)
			h.netns = v.netns
			d.hooks[t.Iface] = append(d.hooks[t.Iface], h)
		}
		return nil
	})
	if err == nil && d.pdm != nil {
		err = d.pdm.attach(t.Iface, t.Name)
	}
	if err != nil {
		return "", errors.Join(err, d.detach(t.Iface))
	}
	return mode, nil
}

// inside makes a hook usable from any namespace. A filter is found by its
// interface, a link is not, but the programs before it are.
func (h *hook) inside(do func(func() error) error, mode Mode) *hook {
	out := *h
	if mode == ModeClsact {
		out.close = func() error { return do(h.close) }
	}
	out.ahead = func() (names []string, err error) {
		err = do(func() (err error) {
			names, err = h.ahead()
			return err
		})
		return names, err
	}
	return &out
}

// Rename makes the policies that choose interfaces by name follow a new one.
func (d *Datapath) Rename(iface flow.Iface, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pdm == nil || len(d.hooks[iface]) == 0 {
		return nil
	}
	return d.pdm.attach(iface, name)
}

// Detach takes the probe off an interface, which may be gone by now. What was
// counted stays until the next drain.
func (d *Datapath) Detach(iface flow.Iface) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.detach(iface)
}

func (d *Datapath) detach(iface flow.Iface) error {
	var errs []error
	netns := uint32(0)
	for _, h := range slices.Backward(d.hooks[iface]) { // the first may own what both hang on
		if err := h.close(); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("detaching %s from interface %d: %w", directionName(h.direction), iface.IfIndex(), err))
		}
	}
	if hooks := d.hooks[iface]; len(hooks) > 0 {
		netns = hooks[0].netns
	}
	delete(d.hooks, iface)
	if d.pdm != nil {
		errs = append(errs, d.pdm.detach(iface))
	}
	if netns != 0 && !d.isOn(netns) {
		d.unload(netns)
	}
	return errors.Join(errs...)
}

// isOn tells whether any interface of a namespace is attached to.
func (d *Datapath) isOn(netns uint32) bool {
	for _, hooks := range d.hooks {
		if slices.ContainsFunc(hooks, func(h *hook) bool { return h.netns == netns }) {
			return true
		}
	}
	return false
}

func directionName(d flow.Direction) string {
	if d == flow.Egress {
		return "egress"
	}
	return "ingress"
}

// attachTCX stands first at ingress and last at egress: what it counts is what
// is on the wire. Where others are at egress already it stands first there too,
// since a program that ends the chain would hide its packets. The link ends with
// this process, however it ends.
func attachTCX(ifindex int, direction flow.Direction, program *ebpf.Program) (*hook, error) {
	opts := link.TCXOptions{
		Interface: ifindex, Program: program,
		Attach: ebpf.AttachTCXIngress, Anchor: link.Head(),
	}
	if direction == flow.Egress {
		opts.Attach = ebpf.AttachTCXEgress
		others, err := foreignTCX(ifindex, direction, 0)
		if err != nil {
			return nil, err
		}
		if len(others) == 0 {
			opts.Anchor = link.Tail()
		}
	}
	l, err := link.AttachTCX(opts)
	if err != nil {
		return nil, err
	}
	info, err := l.Info()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &hook{
		direction: direction, close: l.Close,
		ahead: func() ([]string, error) { return foreignTCX(ifindex, direction, info.ID) },
	}, nil
}
