// Package topology knows the interfaces of this host, in its own network
// namespace and in named ones. Input: netlink messages, and the files in /run/netns.
// Output: events for the interfaces to watch, and answers of a Registry: name, kind
// and counters of the interface of a flow.Iface, and the graph of all. The agent runs
// the Watcher; probes, flow table, status and API ask the Registry.
package topology

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// Limits of flow.Iface: ten bits of namespace and 22 bits of ifindex. Interfaces
// with a larger index are numbered as if they were in another namespace, one for
// each 2²² indices.
const (
	MaxNetns    = 1 << 10
	MaxIfIndex  = 1<<ifIndexBits - 1
	ifIndexBits = 22
)

// ErrTooManyNetns is wrapped by an Event of kind Refused. Interfaces with an index
// above MaxIfIndex count as those of a further namespace.
var ErrTooManyNetns = errors.New("more than 1023 further network namespaces")

// AllNetns in Config.Netns stands for every named network namespace.
const AllNetns = "all"

// Config says which interfaces to watch.
type Config struct {
	// Interfaces are names or globs (path.Match): "eth0", "veth*".
	Interfaces []string
	// Exclude are names or globs of interfaces that are not watched although they
	// match.
	Exclude []string
	// Netns are the named network namespaces to look into in addition to the own one:
	// names or globs, or AllNetns.
	Netns []string
	// Linger is how long an interface that is gone is still known by name, and
	// how long the number of a namespace that is gone is not given to another.
	// It must outlast the longest time between a packet and its record.
	Linger time.Duration
}

// Default watches every interface of the own namespace.
func Default() Config {
	return Config{Interfaces: []string{"*"}, Linger: 10 * time.Minute}
}

// Validate reports patterns that cannot match anything.
func (c Config) Validate() error {
	if len(c.Interfaces) == 0 {
		return errors.New("no interfaces to watch: name at least one, for example \"eth0\" or \"veth*\"")
	}
	for _, p := range slices.Concat(c.Interfaces, c.Exclude, c.Netns) {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("interface or namespace pattern %q is malformed: use a name or a glob of *, ? and [a-z]", p)
		}
	}
	if c.Linger < 0 {
		return fmt.Errorf("linger of %v is negative", c.Linger)
	}
	return nil
}

func (c Config) matchesIface(name string) bool {
	return matchAny(c.Interfaces, name) && !matchAny(c.Exclude, name)
}

func (c Config) matchesNetns(name string) bool {
	for _, p := range c.Netns {
		if p == AllNetns {
			return true
		}
	}
	return matchAny(c.Netns, name)
}

func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, _ := path.Match(p, name); ok {
			return true
		}
	}
	return false
}

func isLiteral(pattern string) bool { return !strings.ContainsAny(pattern, `*?[\`) }

// Link is one interface as it was last seen.
type Link struct {
	Iface    flow.Iface `json:"-"`
	Name     string     `json:"name"`
	Netns    string     `json:"netns,omitempty"` // empty: the agent's own
	IfIndex  uint32     `json:"ifindex"`
	Kind     string     `json:"kind"`      // veth, bridge, vxlan, …; physical; loopback
	LinkType string     `json:"link_type"` // ether, loopback, none, ipip, … (ARPHRD)
	MTU      int        `json:"mtu"`
	Up       bool       `json:"up"` // administratively
	MAC      string     `json:"mac,omitempty"`

	NetnsNumber uint32 `json:"-"` // of its namespace
}

// Ethernet reports whether frames of this link start with an Ethernet header.
func (l Link) Ethernet() bool { return l.LinkType == "ether" || l.LinkType == "loopback" }

// String is the name, with its namespace where that is not the own one.
func (l Link) String() string {
	if l.Netns == "" || l.Name == "" { // of a namespace as a whole
		return l.Netns + l.Name
	}
	return l.Netns + "/" + l.Name
}

// EventKind says what happened to a watched link.
type EventKind uint8

const (
	// Added: a link matches that did not exist, or had another name.
	Added EventKind = iota + 1
	// Removed: a watched link is gone, or no longer has a matching name.
	Removed
	// Renamed: a watched link has another name that matches too.
	Renamed
	// Up and Down: the administrative state of a watched link changed.
	Up
	Down
	// Refused: something cannot be watched; Err says what and why.
	Refused
	// Synced comes once, after everything that existed at the start.
	Synced
	// Matched comes after what follows from other patterns (Watcher.Match).
	Matched
)

func (k EventKind) String() string {
	names := [...]string{"", "added", "removed", "renamed", "up", "down", "refused", "synced", "matched"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("event %d", k)
}

// Event is one change of a watched link. Link is its state after the change;
// for Removed the state before it.
type Event struct {
	Kind EventKind
	Link Link
	Old  string // Renamed: the former name
	Gone bool   // Removed: it is not in the network namespace anymore
	Err  error  // Refused
}
