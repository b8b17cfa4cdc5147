// Package policy says which flows are marked with PDM (RFC 8250): by prefix,
// protocol, port and interface, and for how long. Input: text of a user. Output:
// policies that are valid and do not overlap. The configuration
// checks them, and the datapath puts them into the kernel.
package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of what the kernel keeps, as enum policy in bpf/pdm/abi.h.
const (
	Max      = 64 // policies
	MaxPorts = 16 // ranges of ports in one policy
)

// Policy names flows. Its zero values, but for To and For, mean "all".
type Policy struct {
	To        netip.Prefix  // destination; IPv6
	Protos    []uint8       // IANA protocol numbers
	Ports     []Ports       // of either end, so that a policy reads the same at both
	Interface string        // name or glob
	For       time.Duration // it ends by itself, unless renewed (RFC 8250 section 4.4)
}

// Ports is a range of ports, both ends included.
type Ports struct{ From, To uint16 }

// String is how the range is written.
func (p Ports) String() string {
	if p.From == p.To {
		return strconv.Itoa(int(p.From))
	}
	return fmt.Sprintf("%d-%d", p.From, p.To)
}

// ParsePorts reads a port, or two with a dash between them.
func ParsePorts(s string) (Ports, error) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	a, errA := strconv.ParseUint(from, 10, 16)
	b, errB := strconv.ParseUint(to, 10, 16)
	switch {
	case errA != nil || errB != nil:
		return Ports{}, fmt.Errorf("%q is neither a port nor a range of ports", s)
	case a > b:
		return Ports{}, fmt.Errorf("%q ends before it begins", s)
	}
	return Ports{From: uint16(a), To: uint16(b)}, nil
}

// ParsePrefix reads an IPv6 prefix, or an address for a prefix of one.
func ParsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, errAddr := netip.ParseAddr(s)
		if errAddr != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is not an IPv6 prefix", s)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if !p.Addr().Is6() || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is an IPv4 prefix: only IPv6 packets carry such options", s)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%q has bits beyond its length: it is %s", s, p.Masked())
	}
	return p, nil
}

// Protocols by the names that a policy may use. Of those without ports, a flow
// is a pair of addresses; of icmpv6, one ping.
var protos = []struct {
	name  string
	num   uint8
	ports bool
}{
	{"tcp", 6, true},
	{"udp", 17, true},
	{"udplite", 136, true},
	{"sctp", 132, true},
	{"dccp", 33, true},
	{"icmpv6", 58, false},
}

// AnyProto is what stands for all protocols.
const AnyProto = "any"

// ProtoNames are the words that [ParseProto] knows, besides numbers.
func ProtoNames() []string {
	names := []string{AnyProto}
	for _, p := range protos {
		names = append(names, p.name)
	}
	return names
}

// ParseProto reads a name or a number; nil stands for all protocols.
func ParseProto(s string) ([]uint8, error) {
	if s == AnyProto {
		return nil, nil
	}
	for _, p := range protos {
		if p.name == s {
			return []uint8{p.num}, nil
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return nil, fmt.Errorf("%q is not a protocol: write a number, or one of %s", s, strings.Join(ProtoNames(), ", "))
	}
	return []uint8{uint8(n)}, nil
}

// HasPorts reports whether the protocol's flows have ports.
func HasPorts(proto uint8) bool {
	for _, p := range protos {
		if p.num == proto {
			return p.ports
		}
	}
	return false
}

// Check says why a policy is impossible on its own.
func (p Policy) Check() error {
	switch {
	case !p.To.IsValid():
		return errors.New("no prefix")
	case !p.To.Addr().Is6() || p.To.Addr().Is4In6():
		return fmt.Errorf("%s is an IPv4 prefix: only IPv6 packets carry such options", p.To)
	case p.For <= 0:
		return fmt.Errorf("a policy of %v ends before it begins", p.For)
	case len(p.Ports) > MaxPorts:
		return fmt.Errorf("%d ranges of ports: at most %d", len(p.Ports), MaxPorts)
	}
	if len(p.Ports) > 0 {
		for _, proto := range p.Protos {
			if !HasPorts(proto) {
				return fmt.Errorf("protocol %d has no ports", proto)
			}
		}
	}
	if _, err := path.Match(p.Interface, ""); err != nil {
		return fmt.Errorf("%q is not an interface pattern: %w", p.Interface, err)
	}
	return nil
}

// Applies reports whether the policy holds on an interface of that name.
func (p Policy) Applies(iface string) bool {
	if p.Interface == "" {
		return true
	}
	ok, _ := path.Match(p.Interface, iface)
	return ok
}

// Overlaps reports whether one packet may be named by both. Interface patterns
// that are not equal count as apart only where neither is a glob.
func (p Policy) Overlaps(q Policy) bool {
	return p.To.Overlaps(q.To) && overlapProtos(p, q) && overlapPorts(p, q) && overlapInterfaces(p.Interface, q.Interface)
}

// Names reports whether the policy is about the protocol: about all of them, or,
// where it names ports, all that have ports, unless it names some.
func (p Policy) Names(proto uint8) bool {
	if len(p.Protos) > 0 {
		return slices.Contains(p.Protos, proto)
	}
	return len(p.Ports) == 0 || HasPorts(proto)
}

func overlapProtos(p, q Policy) bool {
	for n := range 256 {
		if p.Names(uint8(n)) && q.Names(uint8(n)) {
			return true
		}
	}
	return false
}

// overlapPorts: a packet has two ports, so ranges that share no port still meet
// in a packet from one to the other. That packet's flow is marked all the same;
// what must not be is that the two policies say different things of a service.
func overlapPorts(p, q Policy) bool {
	if len(p.Ports) == 0 || len(q.Ports) == 0 {
		return true
	}
	return slices.ContainsFunc(p.Ports, func(a Ports) bool {
		return slices.ContainsFunc(q.Ports, func(b Ports) bool { return a.From <= b.To && b.From <= a.To })
	})
}

func overlapInterfaces(a, b string) bool {
	isGlob := func(s string) bool { return strings.ContainsAny(s, `*?[\`) }
	switch {
	case a == "" || b == "" || a == b:
		return true
	case isGlob(a) && isGlob(b):
		// Two patterns: as far as their fixed beginnings tell.
		a, b = a[:strings.IndexAny(a, `*?[\`)], b[:strings.IndexAny(b, `*?[\`)]
		return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
	case isGlob(a):
		ok, _ := path.Match(a, b)
		return ok
	case isGlob(b):
		ok, _ := path.Match(b, a)
		return ok
	}
	return false
}

// CheckAll says what is wrong with a list: the first policy that is impossible,
// or the first two that overlap.
func CheckAll(policies []Policy) error {
	if len(policies) > Max {
		return fmt.Errorf("%d policies: at most %d", len(policies), Max)
	}
	for i, p := range policies {
		if err := p.Check(); err != nil {
			return fmt.Errorf("policy %d: %w", i+1, err)
		}
		for j, q := range policies[:i] {
			if p.Overlaps(q) {
				return fmt.Errorf("policy %d (to %s) overlaps policy %d (to %s): a packet may match at most one policy", i+1, p.To, j+1, q.To)
			}
		}
	}
	return nil
}
