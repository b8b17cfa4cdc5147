package headroom

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/wire/pdm"
)

// What can be changed.
const (
	kindMTU      = "IPv6 MTU"
	kindSegments = "gso_max_segs"
	kindRoute    = "route MTU"
)

// change is one value that was something else before.
type change struct {
	Link
	Kind string `json:"kind"`
	From int    `json:"from"` // of a route, 0: it had none of its own
	To   int    `json:"to"`

	// Of a route: what finds it again.
	Route *routeID `json:"route,omitempty"`
}

// routeID names a route of an interface.
type routeID struct {
	To       netip.Prefix `json:"to"`
	Table    int          `json:"table"`
	Priority int          `json:"priority"`
	Via      netip.Addr   `json:"via"` // zero: on the link
}

// is tells whether both are about the same value.
func (c change) is(d change) bool {
	return c.Link == d.Link && c.Kind == d.Kind &&
		(c.Route == nil) == (d.Route == nil) && (c.Route == nil || *c.Route == *d.Route)
}

// check refuses an MTU that IPv6 does not allow.
func (c change) check() error {
	if c.Kind == kindSegments || c.To >= minMTU {
		return nil
	}
	return fmt.Errorf("%w: the %s of %s would be %d, and IPv6 needs %d: raise the MTU to at least %d, or set pdm.reserve: none, which leaves large packets unmarked",
		ErrTooSmall, c.Kind, c.Link, c.To, minMTU, minMTU+pdm.HeaderSize)
}

// get reads the value as it is now, in the namespace of the interface.
func (c change) get() (int, error) {
	l, err := c.link()
	if err != nil {
		return 0, err
	}
	switch c.Kind {
	case kindMTU:
		return readMTU(c.Name)
	case kindSegments:
		return int(l.Attrs().GSOMaxSegs), nil
	}
	r, err := c.route()
	if err != nil {
		return 0, err
	}
	if r.MTU == 0 {
		return readMTU(c.Name)
	}
	return r.MTU, nil
}

// set writes it.
func (c change) set(value int) error {
	switch c.Kind {
	case kindMTU:
		return writeMTU(c.Name, value)
	case kindSegments:
		l, err := c.link()
		if err != nil {
			return err
		}
		return netlink.LinkSetGSOMaxSegs(l, value)
	}
	r, err := c.route()
	if err != nil {
		return err
	}
	r.MTU = value
	return netlink.RouteReplace(r)
}

// undo puts back what was there, unless someone else has changed it since.
func (c change) undo() error {
	now, err := c.get()
	if err != nil || now != c.To {
		return err
	}
	from := c.From
	if c.Kind == kindMTU {
		l, err := c.link()
		if err != nil {
			return err
		}
		from = min(from, l.Attrs().MTU) // no more than the link has by now
	}
	return c.set(from)
}

// link is the interface, if it is still the same.
func (c change) link() (netlink.Link, error) {
	l, err := netlink.LinkByName(c.Name)
	if _, missing := err.(netlink.LinkNotFoundError); missing {
		return nil, fmt.Errorf("interface %s %w", c.Name, errGone)
	}
	if err != nil {
		return nil, fmt.Errorf("look up interface %s: %w", c.Name, err)
	}
	if l.Attrs().Index != c.Index {
		return nil, fmt.Errorf("interface %s %w: another has its name", c.Name, errGone)
	}
	return l, nil
}

// planInterface is the change of an interface's IPv6 MTU; none where it has no IPv6.
func planInterface(l Link) ([]change, error) {
	mtu, err := readMTU(l.Name)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []change{{Link: l, Kind: kindMTU, From: mtu, To: shortened(mtu)}}, nil
}

// planSegments is the change of the segments that a burst may have.
func planSegments(l Link) ([]change, error) {
	link, err := change{Link: l}.link()
	if err != nil {
		return nil, err
	}
	if link.Attrs().GSOMaxSegs == 1 {
		return nil, nil
	}
	return []change{{Link: l, Kind: kindSegments, From: int(link.Attrs().GSOMaxSegs), To: 1}}, nil
}

// mtuFile is the IPv6 MTU of an interface: what the host sends is no larger,
// what it receives may be.
func mtuFile(iface string) string {
	return filepath.Join("/proc/sys/net/ipv6/conf", iface, "mtu")
}

func readMTU(iface string) (int, error) {
	text, err := os.ReadFile(mtuFile(iface))
	if err != nil {
		return 0, err
	}
	mtu, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s holds %q", mtuFile(iface), text)
	}
	return mtu, nil
}

func writeMTU(iface string, mtu int) error {
	return os.WriteFile(mtuFile(iface), []byte(strconv.Itoa(mtu)), 0)
}
