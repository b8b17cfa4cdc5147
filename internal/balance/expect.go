package balance

import (
	"errors"
	"net"
	"time"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
)

// expectedFor is how long interfaces may take to be attached.
const expectedFor = 10 * time.Second

// Expect makes interfaces ports that are going to be attached to, as far as they are in this namespace. They are attached one after the
// other: where programs of an agent before balance still, the first interface of this agent would otherwise drop what leaves by
// another, for as long as it takes to load programs.
func (b *Balancer) Expect() error {
	return b.do(func() error { return b.expect(time.Now()) })
}

func (b *Balancer) expect(now time.Time) error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		iface := flow.NewIface(0, uint32(l.Index))
		if !b.has(l.Name) || b.ports[iface] != nil || l.Flags&net.FlagLoopback != 0 {
			continue
		}
		p, err := b.newPort(datapath.Hook{Type: datapath.XDP, Target: &datapath.Target{
			Iface: iface, IfIndex: uint32(l.Index), Name: l.Name, Do: func(f func() error) error { return f() },
		}})
		if p == nil {
			errs = append(errs, err)
			continue
		}
		p.until = now.Add(expectedFor)
		errs = append(errs, b.follow(p))
	}
	return errors.Join(errs...)
}

// endExpected forgets interfaces to which the agent has not attached.
func (b *Balancer) endExpected(now time.Time) error {
	var errs []error
	for iface, p := range b.ports {
		if !p.attached && !p.until.IsZero() && now.After(p.until) {
			p.until = time.Time{}
			errs = append(errs, b.publish(p))
			delete(b.ports, iface)
		}
	}
	return errors.Join(errs...)
}

// isPort reports whether packets may leave by it, and be balanced where they arrive.
func (p *port) isPort() bool { return p.attached || !p.until.IsZero() }
