package headroom

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// planRoutes are the changes of an interface's routes to what policies name.
// Routes that a router advertises are not changed: they would lose their end.
func planRoutes(l Link, prefixes []netip.Prefix) ([]change, error) {
	mtu, err := readMTU(l.Name)
	if err != nil {
		return nil, err
	}
	routes, err := routesOf(l)
	if err != nil {
		return nil, err
	}
	var changes []change
	for _, r := range routes {
		id := idOf(&r)
		if !slices.ContainsFunc(prefixes, id.To.Overlaps) {
			continue
		}
		if r.Protocol == unix.RTPROT_RA {
			return nil, fmt.Errorf("the route to %s comes from a router, whose word on its lifetime a change would undo: set pdm.reserve: interface", id.To)
		}
		whole := mtu
		if r.MTU != 0 {
			whole = min(r.MTU, mtu)
		}
		changes = append(changes, change{Link: l, Kind: kindRoute, From: r.MTU, To: shortened(whole), Route: &id})
	}
	return changes, nil
}

// routesOf are the unicast routes of an interface, but for link-local ones.
// Routes with several next hops are on none of them.
func routesOf(l Link) ([]netlink.Route, error) {
	filter := &netlink.Route{LinkIndex: l.Index, Table: unix.RT_TABLE_UNSPEC}
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
	routes, err := routesOf(c.Link)
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
