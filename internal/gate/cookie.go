package gate

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/internal/topology"
)

// Bits of what SYN-ACKs on an interface say.
const (
	noScale       = uint8(abiGateAnswersGATE_ANSWERS_SCALE)
	answersStamps = uint8(abiGateAnswersGATE_ANSWERS_STAMPS)
	answersSACK   = uint8(abiGateAnswersGATE_ANSWERS_SACK)
	answersSend   = uint8(abiGateAnswersGATE_ANSWERS_SEND)
)

// tcpSettings are those of a network namespace that decide about SYN cookies.
type tcpSettings struct{ cookies, timestamps, scaling, sack, space int }

// readTCP reads the settings of the namespace of the caller.
func readTCP() (s tcpSettings, err error) {
	read := func(name string, which int) int {
		text, readErr := os.ReadFile("/proc/sys/net/" + name)
		if words := strings.Fields(string(text)); readErr == nil && which < len(words) {
			n, parseErr := strconv.Atoi(words[which])
			err = errors.Join(err, parseErr)
			return n
		}
		err = errors.Join(err, readErr)
		return 0
	}
	s = tcpSettings{
		cookies: read("ipv4/tcp_syncookies", 0), timestamps: read("ipv4/tcp_timestamps", 0), scaling: read("ipv4/tcp_window_scaling", 0),
		sack: read("ipv4/tcp_sack", 0), space: read("ipv4/tcp_rmem", 2),
	}
	if err != nil {
		return s, fmt.Errorf("settings of TCP: %w", err)
	}
	// The largest of both counts. Older kernels show this one in the first namespace only.
	if largest := read("core/rmem_max", 0); err == nil {
		s.space = max(s.space, largest)
	} else {
		s.space = 0
	}
	return s, nil
}

// answers are what SYN-ACKs may say, so that the kernel understands what returns: it keeps
// options in timestamps only, and reads them there only if these have no random offset.
func (s tcpSettings) answers() uint8 {
	out := noScale
	if s.timestamps != 2 {
		return out
	}
	out |= answersStamps
	if s.sack != 0 {
		out |= answersSACK
	}
	if s.scaling != 0 && s.space > 0 {
		out = out&^noScale | uint8(min(max(bits.Len(uint(s.space))-1-15, 0), 14)) // tcp_select_initial_window()
	}
	return out
}

// hasCookies reports whether rules answer SYNs.
func hasCookies(rs *rules.Ruleset) bool {
	return slices.ContainsFunc(rs.Rules, func(r *rules.Rule) bool { return r.Action == rules.ActionSynCookie && !r.DryRun })
}

// checkCookies refuses rules whose cookies the kernel would not accept.
func (g *Gate) checkCookies(rs *rules.Ruleset) error {
	if !hasCookies(rs) {
		return nil
	}
	return g.do(func() error {
		for _, p := range g.ifaces {
			if p.do == nil {
				continue
			}
			var s tcpSettings
			if err := p.do(func() (err error) { s, err = readTCP(); return err }); err != nil {
				return fmt.Errorf("syncookie on %s: %w", p.Name, err)
			}
			if s.cookies == 0 {
				return fmt.Errorf("syncookie on %s: the kernel accepts no SYN cookies: set net.ipv4.tcp_syncookies to 2, or to 1 to answer only while a listener's queue is full", p.Name)
			}
		}
		return nil
	})
}

// refreshCookies follows settings and addresses of the host. The caller is in do.
func (g *Gate) refreshCookies() error {
	if !g.cookies {
		return nil
	}
	next, changed := g.control, false
	addresses := map[abiGateLocalKey]bool{}
	seen := map[uint32]bool{}
	var errs []error
	for i, p := range g.ifaces {
		if p.do == nil {
			continue
		}
		netns := i.Netns()
		err := p.do(func() error {
			s, err := readTCP()
			if err != nil {
				return err
			}
			answers := s.answers()
			if p.sends {
				answers |= answersSend
			}
			if p.answers != answers {
				p.answers, changed = answers, true
				g.ifaces[i] = p
				if err := g.table.AddIface(&next, uint32(i), p.Name, p.hooks, p.answers); err != nil {
					return err
				}
			}
			if seen[netns] {
				return nil
			}
			seen[netns] = true
			return localAddresses(netns, addresses)
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("syncookie on %s: %w", p.Name, err))
		}
	}
	if changed {
		errs = append(errs, g.publish(&next))
	}
	if err := errors.Join(errs...); err != nil {
		return err // not all addresses are known
	}
	return g.setLocal(addresses)
}

// localAddresses adds those of the namespace of the caller.
func localAddresses(netns uint32, into map[abiGateLocalKey]bool) error {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("addresses of the host: %w", err)
	}
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			addr = addr.Unmap()
			key := banKey(netip.PrefixFrom(addr, addr.BitLen()))
			into[abiGateLocalKey{High: key.High, Low: key.Low, Netns: netns, Ipv6: key.Ipv6}] = true
		}
	}
	return nil
}

// setLocal has the programs know the addresses of the host.
func (g *Gate) setLocal(next map[abiGateLocalKey]bool) error {
	m := g.maps["gate_local"]
	for key := range g.local {
		if !next[key] {
			if err := m.Delete(key); err != nil {
				return fmt.Errorf("an address of the host that is gone: %w", err)
			}
			delete(g.local, key)
		}
	}
	for key := range next {
		if !g.local[key] {
			if err := m.Put(key, uint8(1)); err != nil {
				return fmt.Errorf("an address of the host, of which some %d fit: %w", m.MaxEntries(), err)
			}
			g.local[key] = true
		}
	}
	return nil
}

// cookieResults are what becomes of packets that a syncookie rule decides about, in the
// order of their numbers.
var cookieResults = [abiGateCookieCountGATE_COOKIE_COUNTS]string{
	abiGateCookieCountGATE_COOKIE_ANSWERED: "answered", abiGateCookieCountGATE_COOKIE_RETURNED: "returned",
	abiGateCookieCountGATE_COOKIE_SOCKET: "socket", abiGateCookieCountGATE_COOKIE_STRAY: "stray", abiGateCookieCountGATE_COOKIE_DROPPED: "dropped",
	abiGateCookieCountGATE_COOKIE_NO_LISTENER: "no_listener", abiGateCookieCountGATE_COOKIE_NOT_LOCAL: "not_local",
	abiGateCookieCountGATE_COOKIE_SOURCE: "source", abiGateCookieCountGATE_COOKIE_QUEUE: "queue", abiGateCookieCountGATE_COOKIE_REFUSED: "refused",
	abiGateCookieCountGATE_COOKIE_HEADERS: "headers", abiGateCookieCountGATE_COOKIE_DATA: "data", abiGateCookieCountGATE_COOKIE_CANNOT_SEND: "cannot_send",
}

// CookieCounts are packets by what became of them.
func (g *Gate) CookieCounts() (map[string]uint64, error) {
	out := map[string]uint64{}
	err := g.do(func() error {
		for n, name := range cookieResults {
			var each []uint64
			if err := g.maps["gate_cookie_counts"].Lookup(uint32(n), &each); err != nil {
				return fmt.Errorf("reading the counters of SYN cookies: %w", err)
			}
			for _, one := range each {
				out[name] += one
			}
		}
		return nil
	})
	return out, err
}

// sends reports whether a program at XDP can send: not on veth, where a frame is lost
// unless the other end polls, and not where the driver takes tags out of frames, which XDP
// would have to put back.
func sends(name string) bool {
	l, err := netlink.LinkByName(name)
	if err != nil || l.Type() == "veth" {
		return false
	}
	all, err := topology.Links()
	return err == nil && !slices.ContainsFunc(all, func(other netlink.Link) bool {
		return other.Type() == "vlan" && other.Attrs().ParentIndex == l.Attrs().Index
	})
}
