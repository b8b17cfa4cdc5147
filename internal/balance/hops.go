package balance

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
)

// Refresh has the programs follow what the kernel says of interfaces and routes, and has the kernel keep the addresses of next
// hops: programs send packets only to neighbours that it knows, and the kernel itself sends these none.
func (b *Balancer) Refresh() error {
	return b.do(func() error {
		var errs []error
		for _, p := range b.sortedPorts() {
			if p.attached {
				errs = append(errs, b.follow(p))
			}
		}
		return errors.Join(append(errs, b.hop(), b.endExpected(time.Now()), b.keep(), b.settle())...)
	})
}

// target is an interface of the balancer, in whose network namespace backends are; nil: none is attached.
func (b *Balancer) target() *datapath.Target {
	for _, p := range b.sortedPorts() {
		if p.attached && b.cfg.Clients(p.hook.Target.Name) {
			return p.hook.Target
		}
	}
	return nil
}

// hop finds the source address of outer headers for each backend, and has the kernel ask who has the next hop.
func (b *Balancer) hop() error {
	t := b.target()
	if t == nil {
		return nil
	}
	return t.Do(func() error {
		asked := map[netip.Addr]bool{}
		for _, be := range b.backends {
			if be == nil {
				continue
			}
			route, next, err := routeTo(be.Addr)
			if err != nil {
				be.reason = err.Error()
				continue
			}
			be.reason = ""
			source, _ := netip.AddrFromSlice(route.Src)
			if err := b.setRoute(be, source.Unmap(), uint32(route.LinkIndex)); err != nil {
				return err
			}
			if !asked[next] {
				asked[next] = true
				_ = use(route.LinkIndex, next) // an interface may have no neighbours
			}
		}
		return nil
	})
}

// routeTo is the route to an address, and its next hop. The caller is in the namespace.
func routeTo(to netip.Addr) (*netlink.Route, netip.Addr, error) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil {
		return nil, to, fmt.Errorf("there is no route to %s: %w", to, err)
	}
	if len(routes) == 0 {
		return nil, to, fmt.Errorf("there is no route to %s", to)
	}
	if routes[0].Type == unix.RTN_LOCAL {
		return nil, to, fmt.Errorf("%s is an address of this host, which cannot be a backend of its own", to)
	}
	if next, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		return &routes[0], next.Unmap(), nil
	}
	return &routes[0], to, nil
}

// use has the kernel find out where a neighbour is, or whether it is still there. One that an administrator has set it would
// take for unknown from then on.
func use(index int, next netip.Addr) error {
	family := unix.AF_INET
	if next.Is6() {
		family = unix.AF_INET6
	}
	if state, err := neighbourState(index, family, next); err != nil || state&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0 {
		return err
	}
	return netlink.NeighSet(&netlink.Neigh{LinkIndex: index, Family: family, IP: net.IP(next.AsSlice()), Flags: netlink.NTF_USE})
}

// neighbourState is what the kernel knows of a neighbour; 0: nothing.
func neighbourState(index, family int, next netip.Addr) (int, error) {
	get := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	get.AddData(&netlink.Ndmsg{Family: uint8(family), Index: uint32(index)})
	get.AddData(nl.NewRtAttr(netlink.NDA_DST, next.AsSlice()))
	found, err := get.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil || len(found) != 1 {
		return 0, fmt.Errorf("asking for neighbour %s: %d found: %w", next, len(found), err)
	}
	n, err := netlink.NeighDeserialize(found[0])
	if err != nil {
		return 0, fmt.Errorf("reading neighbour %s: %w", next, err)
	}
	return n.State, nil
}

// setRoute has outer headers to a backend come from an address, and its health checks leave by an interface.
func (b *Balancer) setRoute(be *backend, source netip.Addr, out uint32) error {
	if be.source == source && be.out == out {
		return nil
	}
	be.source, be.out = source, out
	return b.writeBackend(be)
}
