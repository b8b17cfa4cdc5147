package headroom

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// What can be changed.
const (
	SettingMTU      = "IPv6 MTU"
	SettingSegments = "gso_max_segs"
	SettingRoute    = "route MTU"
)

// change is one setting that was something else before. An interface is found
// by its index, since names change.
type change struct {
	Netns   netns    `json:"netns"`
	Index   int      `json:"index"`
	Name    string   `json:"name"`
	MAC     string   `json:"mac,omitempty"`
	Setting string   `json:"setting"`
	Route   *routeID `json:"route,omitempty"` // finds it again
	From    int      `json:"from"`            // of a route, 0: it had none of its own
	To      int      `json:"to"`
	Bytes   int      `json:"bytes,omitempty"` // by which an MTU was reduced; absent: 16
	Owners  []owner  `json:"owners"`          // agents that need it

	need    int    // bytes that this agent needs
	keys    string // of the configuration that asks for them
	now     int    // while it is planned: the value in effect
	linkMTU int
}

// formerBytes is what agents reserved that wrote no Bytes.
const formerBytes = 16

// bytes are those by which the MTU was reduced.
func (c change) bytes() int {
	if c.Bytes == 0 {
		return formerBytes
	}
	return c.Bytes
}

// serves reports whether what was reduced is enough for a planned change and, where
// no other agent needs it, no more than that.
func (c change) serves(planned change, self owner) bool {
	if c.Setting == SettingSegments || c.bytes() == planned.need {
		return true
	}
	return c.bytes() > planned.need && slices.ContainsFunc(c.Owners, func(o owner) bool { return o != self })
}

// resize makes a planned change take over from one that reduced by other bytes.
func (c *change) resize(older *change) {
	c.From, c.Owners = older.From, older.Owners
	c.To = older.To + older.bytes() - c.need
}

// routeID names a route of an interface.
type routeID struct {
	To       netip.Prefix `json:"to"`
	Table    int          `json:"table"`
	Priority int          `json:"priority"`
	Via      netip.Addr   `json:"via"` // zero: on the link
}

// is reports whether both are about the same setting.
func (c change) is(d change) bool {
	return c.Netns.is(d.Netns) && c.Index == d.Index && (c.MAC == d.MAC || c.Name == d.Name) && c.Setting == d.Setting &&
		(c.Route == nil) == (d.Route == nil) && (c.Route == nil || *c.Route == *d.Route)
}

func (c *change) add(o owner) {
	if !slices.Contains(c.Owners, o) {
		c.Owners = append(slices.Clone(c.Owners), o)
	}
}

func (c *change) remove(o owner) {
	c.Owners = slices.DeleteFunc(slices.Clone(c.Owners), func(p owner) bool { return p == o })
}

func (c change) link() Link { return Link{Netns: c.Netns.Name, Name: c.Name, Index: c.Index} }

func (c change) reduction() Reduction {
	r := Reduction{Link: c.link(), Setting: c.Setting, From: c.From, To: c.To}
	if c.Route != nil {
		r.Route = c.Route.To.String()
	}
	return r
}

// attrs are the change for the log.
func (c change) attrs() []any {
	a := []any{"iface", c.link().String(), "setting", c.Setting, "from", c.From, "to", c.To}
	if c.Route != nil {
		a = append(a, "route", c.Route.To)
	}
	return a
}

// restored is what a log says of a change that was undone.
func (c change) restored() []any {
	c.From, c.To = c.To, c.From
	return c.attrs()
}

// satisfied reports whether the setting is as low as it would be made. An IPv6 MTU
// that leaves headroom below that of the link, and is not in the journal, was
// reduced by an agent whose journal is lost: reducing it again would never end.
func (c change) satisfied() bool {
	return c.now == c.To || c.Setting == SettingMTU && c.now == c.linkMTU-c.need
}

// inherit takes over from an older change of the same setting.
func (c *change) inherit(older *change) {
	c.Owners = older.Owners
	if c.Setting == SettingRoute && c.From == older.To { // not the route was changed, but the interface
		c.From = older.From
	}
}

// check refuses an MTU that IPv6 does not allow.
func (c change) check() error {
	if c.Setting == SettingSegments || c.To >= minMTU || c.satisfied() {
		return nil
	}
	// Without what is reserved already, which c.now is reduced by.
	return fmt.Errorf("%w: the %s of %s is %d, and MTU headroom takes %d: raise the MTU, or set %s: none",
		ErrTooSmall, c.Setting, c.link(), c.To+c.need, minMTU+c.need, c.keys)
}

// planMTU is the IPv6 MTU of the interface; nothing where it has no IPv6.
func (p place) planMTU(needs []Need) ([]change, error) {
	bytes, keys := sum(needs, func(n Need) bool { return n.Mode == Interface })
	if bytes == 0 {
		return nil, nil
	}
	mtu, err := readMTU(p.Name)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []change{p.reduction(SettingMTU, mtu, bytes, keys)}, nil
}

// sum adds the bytes of chosen needs, with the keys that ask for them.
func sum(needs []Need, chosen func(Need) bool) (bytes int, keys string) {
	var all []string
	for _, n := range needs {
		if chosen(n) && n.Bytes > 0 {
			bytes += n.Bytes
			all = append(all, n.Key)
		}
	}
	return bytes, strings.Join(all, " or ")
}

// planSegments is the number of segments that a burst may have.
func (p place) planSegments(needs []Need) ([]change, error) {
	if !slices.ContainsFunc(needs, func(n Need) bool { return n.Packets }) {
		return nil, nil
	}
	return []change{p.change(SettingSegments, int(p.attrs.GSOMaxSegs), 1)}, nil
}

func (p place) change(setting string, now, to int) change {
	return change{
		Netns: p.netns, Index: p.Index, Name: p.Name, MAC: p.attrs.HardwareAddr.String(),
		Setting: setting, From: now, To: to, now: now, linkMTU: p.attrs.MTU,
	}
}

// reduction is an MTU that is smaller by some bytes.
func (p place) reduction(setting string, mtu, bytes int, keys string) change {
	c := p.change(setting, mtu, mtu-bytes)
	c.Bytes, c.need, c.keys = bytes, bytes, keys
	return c
}

// attrsNow is the interface, if it is still the same one.
func (c change) attrsNow() (*netlink.LinkAttrs, error) {
	attrs, err := attrsOf(c.Index)
	if err != nil {
		return nil, err
	}
	if attrs.HardwareAddr.String() != c.MAC && attrs.Name != c.Name {
		return nil, fmt.Errorf("interface %s %w: %s has its index", c.Name, errGone, attrs.Name)
	}
	return attrs, nil
}

// get reads the value in effect, in the namespace of the interface.
func (c change) get(attrs *netlink.LinkAttrs) (int, error) {
	switch c.Setting {
	case SettingMTU:
		return readMTU(attrs.Name)
	case SettingSegments:
		return int(attrs.GSOMaxSegs), nil
	}
	r, err := c.route()
	if err != nil {
		return 0, err
	}
	if r.MTU == 0 {
		return readMTU(attrs.Name)
	}
	return r.MTU, nil
}

// set writes it.
func (c change) set(value int) error {
	attrs, err := c.attrsNow()
	if err != nil {
		return err
	}
	switch c.Setting {
	case SettingMTU:
		return writeMTU(attrs.Name, value)
	case SettingSegments:
		return netlink.LinkSetGSOMaxSegs(&netlink.GenericLink{LinkAttrs: *attrs}, value)
	}
	r, err := c.route()
	if err != nil {
		return err
	}
	r.MTU = value
	return netlink.RouteReplace(r)
}

// undo restores what was there, unless something else has changed it since.
func (c change) undo() (done bool, err error) {
	attrs, err := c.attrsNow()
	if err != nil {
		return false, err
	}
	now, err := c.get(attrs)
	if err != nil || now != c.To {
		return false, err
	}
	from := c.From
	if c.Setting == SettingMTU {
		from = min(from, attrs.MTU) // no more than the link has by now
	}
	return true, c.set(from)
}

func compareLinks(a, b Link) int {
	return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Index, b.Index))
}

func compareReductions(a, b Reduction) int {
	return cmp.Or(compareLinks(a.Link, b.Link), cmp.Compare(a.Setting, b.Setting), cmp.Compare(a.Route, b.Route))
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
