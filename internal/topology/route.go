package topology

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// DefaultRouteInterfaces are the names of the interfaces of the own namespace
// over which a default route of the main table leads, IPv4 or IPv6, in
// alphabetical order.
func DefaultRouteInterfaces() ([]string, error) {
	var indexes []int
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("reading the routes of the main table: %w", err)
		}
		for _, r := range routes {
			// An unreachable default route is of another type, and leads over lo.
			if ones, _ := maskSize(r); ones > 0 || r.Type != unix.RTN_UNICAST {
				continue
			}
			indexes = append(indexes, r.LinkIndex)
			for _, hop := range r.MultiPath {
				indexes = append(indexes, hop.LinkIndex)
			}
		}
	}
	var names []string
	for _, index := range indexes {
		if index == 0 { // of a route with several next hops
			continue
		}
		link, err := netlink.LinkByIndex(index)
		if err != nil {
			return nil, fmt.Errorf("looking up interface %d of a default route: %w", index, err)
		}
		names = append(names, link.Attrs().Name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// maskSize is the length of a route's destination; 0 of a default route, which
// has 0.0.0.0/0, ::/0 or nothing.
func maskSize(r netlink.Route) (ones, bits int) {
	if r.Dst == nil {
		return 0, 0
	}
	return r.Dst.Mask.Size()
}
