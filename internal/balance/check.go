package balance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
)

// checks are the programs that have packets of health checks take the way to their backend.
type checks struct {
	program *ebpf.Program
	links   map[flow.Iface]link.Link
}

// open loads the program, which reads the backends that the balancer has.
func (c *checks) open(backends *ebpf.Map) error {
	spec, err := loadCheck()
	if err != nil {
		return fmt.Errorf("reading the built-in object check.bpf.c: %w", err)
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{"balance_backends": backends}})
	if err != nil {
		return fmt.Errorf("loading the program of health checks: %w", err)
	}
	defer coll.Close()
	c.program, c.links = coll.DetachProgram("waymark_check"), map[flow.Iface]link.Link{}
	return nil
}

// attach puts it on an interface, in front of what others have there.
func (c *checks) attach(t *datapath.Target) error {
	if c.links[t.Iface] != nil {
		return nil
	}
	return t.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: int(t.IfIndex), Program: c.program, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
		if err != nil {
			return fmt.Errorf("health checks at %s: %w", t.String(), err)
		}
		c.links[t.Iface] = l
		return nil
	})
}

func (c *checks) detach(iface flow.Iface) error {
	l := c.links[iface]
	if l == nil {
		return nil
	}
	delete(c.links, iface)
	return l.Close()
}

func (c *checks) close() {
	for iface := range c.links {
		_ = c.detach(iface) // the interface may be gone
	}
	if c.program != nil {
		c.program.Close()
	}
}

// Dial opens a connection to the address of a service that goes to one backend.
func (b *Balancer) Dial(ctx context.Context, at Address, to netip.Addr, network string) (c net.Conn, err error) {
	mark := 0
	var from *datapath.Target
	if err := b.do(func() error {
		s := b.services[at]
		if s == nil || s.backends[to] == nil {
			return errors.New("there is no such backend")
		}
		if be := s.backends[to]; be.reason != "" {
			return errors.New(be.reason)
		}
		mark = int(abiBalanceSizeBALANCE_MARK) | int(s.backends[to].number)
		if from = b.target(); from == nil {
			return errors.New("the agent attaches to none of balance.interfaces")
		}
		return nil
	}); err != nil {
		return nil, err
	}
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if rawErr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark) }); rawErr != nil {
			return rawErr
		}
		return err
	}}
	err = from.Do(func() error {
		c, err = d.DialContext(ctx, network, netip.AddrPortFrom(at.Addr, at.Port).String())
		return err
	})
	return c, err
}
