package headroom

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// planRoutes are the interface's routes to what stages name. Routes that a
// router advertises are not changed: they would never expire.
func (p place) planRoutes(needs []Need) (wanted []change, err error) {
	if !slices.ContainsFunc(needs, func(n Need) bool { return n.Mode == Route }) {
		return nil, nil
	}
	mtu, err := readMTU(p.Name)
	if err != nil {
		return nil, err
	}
	routes, err := routesOf(p.Index)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, r := range routes {
		id := idOf(&r)
		bytes, keys := sum(needs, func(n Need) bool {
			return n.Mode == Route && slices.ContainsFunc(n.Prefixes, id.To.Overlaps)
		})
		if bytes == 0 {
			continue
		}
		if r.Protocol == unix.RTPROT_RA {
			errs = append(errs, fmt.Errorf("the route to %s is advertised by a router, and a change would remove its lifetime: set %s: interface", id.To, keys))
			continue
		}
		now := mtu
		if r.MTU != 0 {
			now = min(r.MTU, mtu)
		}
		c := p.reduction(SettingRoute, now, bytes, keys)
		c.Route, c.From = &id, r.MTU
		wanted = append(wanted, c)
	}
	return wanted, errors.Join(errs...)
}

// routesOf are the unicast routes of an interface except link-local ones. Routes
// with several next hops are on none of them.
func routesOf(index int) ([]netlink.Route, error) {
	filter := &netlink.Route{LinkIndex: index, Table: unix.RT_TABLE_UNSPEC}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return slices.DeleteFunc(routes, func(r netlink.Route) bool {
		to := idOf(&r).To
		return r.Table == unix.RT_TABLE_LOCAL || r.Type != unix.RTN_UNICAST || len(r.MultiPath) > 0 ||
			to.Bits() > 0 && (to.Addr().IsLinkLocalUnicast() || to.Addr().IsMulticast())
	}), nil
}

func idOf(r *netlink.Route) routeID {
	id := routeID{To: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Table: r.Table, Priority: r.Priority}
	if r.Dst != nil {
		if addr, ok := netip.AddrFromSlice(r.Dst.IP.To16()); ok {
			bits, _ := r.Dst.Mask.Size()
			id.To = netip.PrefixFrom(addr, bits)
		}
	}
	if addr, ok := netip.AddrFromSlice(r.Gw); ok {
		id.Via = addr
	}
	return id
}

// route is the route that the change is about.
func (c change) route() (*netlink.Route, error) {
	routes, err := routesOf(c.Index)
	if err != nil {
		return nil, err
	}
	for i := range routes {
		if idOf(&routes[i]) == *c.Route {
			return &routes[i], nil
		}
	}
	return nil, fmt.Errorf("route to %s %w", c.Route.To, errGone)
}
