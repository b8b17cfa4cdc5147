package balance

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/forward"
	"github.com/waymark-net/waymark/internal/order"
)

// port is an interface of the balancer or of a backend.
type port struct {
	hook     datapath.Hook
	attached bool
	place    uint32
	forward.Ability
	sends bool           // it is in balance_out
	until time.Time      // it is a port until then though it is not attached to; zero: it is not
	shown abiForwardPort // to programs
}

func (b *Balancer) sortedPorts() (all []*port) {
	for _, p := range b.ports {
		all = append(all, p)
	}
	order.By(all, func(a, b *port) int { return cmp.Compare(a.hook.Target.Iface, b.hook.Target.Iface) })
	return all
}

// newPort gives an interface a place; nil: there is none.
func (b *Balancer) newPort(h datapath.Hook) (*port, error) {
	taken := map[uint32]bool{}
	for _, other := range b.ports {
		taken[other.place] = true
	}
	place, err := forward.FreePlace(uint32(h.Target.Iface), taken)
	if err != nil {
		b.log.Warn("balance: packets of an interface are not balanced", "interface", h.Target.String(), "reason", err)
		return nil, nil
	}
	if err := b.maps["balance_counts"].Put(place, make([]abiBalanceCount, ebpf.MustPossibleCPU())); err != nil {
		return nil, fmt.Errorf("balancing at %s: %w", h.Target.String(), err)
	}
	p := &port{place: place, hook: h}
	b.ports[h.Target.Iface] = p
	return p, nil
}

// attach makes an interface a port, or follows its new name.
func (b *Balancer) attach(h datapath.Hook) error {
	iface := h.Target.Iface
	p := b.ports[iface]
	if p == nil {
		var err error
		if p, err = b.newPort(h); p == nil {
			return err
		}
	}
	p.hook, p.attached, p.until = h, true, time.Time{}
	if b.cfg.Clients(h.Target.Name) {
		if err := b.checks.attach(h.Target); err != nil {
			return err
		}
	}
	if err := b.follow(p); err != nil {
		return err
	}
	return errors.Join(b.hop(), b.inherit(), b.keep())
}

// follow has a port be as the kernel says now.
func (b *Balancer) follow(p *port) error {
	var now forward.Ability
	err := p.hook.Target.Do(func() (err error) {
		now, err = forward.Examine(p.hook)
		return err
	})
	if err != nil { // it may be gone, which the datapath will learn
		now = forward.Ability{Off: err.Error(), Closed: err.Error()}
	}
	if now.Off != p.Off || now.Closed != p.Closed {
		b.report(p, &now)
	}
	p.Ability = now
	return b.publish(p)
}

// report has the log say why packets are not balanced.
func (b *Balancer) report(p *port, now *forward.Ability) {
	name := p.hook.Target.String()
	switch {
	case now.Off != "":
		b.log.Warn("balance: packets of an interface are left to the kernel", "interface", name, "reason", now.Off)
	case now.Closed != "" && b.cfg.Clients(p.hook.Target.Name):
		b.log.Warn("balance: no packets leave by an interface", "interface", name, "reason", now.Closed)
	}
}

// publish shows programs a port as it is: one that is to send is in the map of devices before.
func (b *Balancer) publish(p *port) error {
	iface := uint32(p.hook.Target.Iface)
	sends := p.Flags&uint32(abiForwardFlagFORWARD_SENDS) != 0 && p.isPort()
	if sends && !p.sends {
		if err := p.hook.Target.Do(func() error { return b.maps["balance_out"].Put(iface, p.Index) }); err != nil {
			return fmt.Errorf("balancing at %s: %w", p.hook.Target.String(), err)
		}
	}
	p.sends = sends
	entry := abiForwardPort{}
	if p.isPort() && p.Off == "" {
		entry = abiForwardPort{Iface: iface, Flags: p.Flags, Mac: p.MAC}
		if b.cfg.Clients(p.hook.Target.Name) {
			entry.Flags |= uint32(abiBalanceFlagBALANCE_CLIENTS)
		}
		if b.cfg.Unwraps(p.hook.Target.Name) {
			entry.Flags |= uint32(abiBalanceFlagBALANCE_UNWRAPS)
		}
	}
	if p.shown != entry {
		b.memory.Values[0].Ports[p.place], p.shown = entry, entry
	}
	return nil
}

// detach leaves the packets of an interface to the kernel.
func (b *Balancer) detach(h datapath.Hook) error {
	p := b.ports[h.Target.Iface]
	if p == nil {
		return nil
	}
	p.attached = false
	return errors.Join(b.checks.detach(h.Target.Iface), b.publish(p))
}

// forget gives the place of an interface that is gone to another.
func (b *Balancer) forget(i flow.Iface) error {
	delete(b.ports, i)
	return nil
}

// IsOurs reports whether a program at XDP is one of an agent, which may have left it there. Without the privilege to look, it may
// be: attaching will show.
func IsOurs(id uint32) bool {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return errors.Is(err, unix.EPERM)
	}
	defer p.Close()
	info, err := p.Info()
	return err == nil && info.Name == datapath.Early.Name
}
