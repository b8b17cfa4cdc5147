package topology

import (
	"errors"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
)

// Neighbour is a host that the kernel of a namespace knows on a link.
type Neighbour struct {
	Netns   string     `json:"netns,omitempty"`
	IfIndex uint32     `json:"ifindex"`
	MAC     string     `json:"mac,omitempty"`
	Addr    netip.Addr `json:"addr,omitzero"`
	Source  Source     `json:"source"`
}

// Source is how a neighbour is known.
type Source string

// The sources.
const (
	ARP    Source = "arp"
	NDP    Source = "ndp"
	FDB    Source = "fdb"    // a port of a bridge received frames from it
	Tunnel Source = "tunnel" // the other end of a tunnel
	LLDP   Source = "lldp"   // it announced itself
)

// hosts reads the tables of neighbours, and of bridges.
func (r *Registry) hosts(s *space) (all []Neighbour, err error) {
	for source, family := range map[Source]int{ARP: unix.AF_INET, NDP: unix.AF_INET6, FDB: unix.AF_BRIDGE} {
		list, err := dumpNeighbours(s.handle, family)
		if err != nil {
			return nil, err
		}
		for i := range list {
			if n, ok := neighbourOf(s, source, &list[i]); ok {
				all = append(all, n)
			}
		}
	}
	return all, nil
}

func dumpNeighbours(h *netlink.Handle, family int) ([]netlink.Neigh, error) {
	list, err := whole(func() ([]netlink.Neigh, error) { return h.NeighList(0, family) })
	if errors.Is(err, unix.EOPNOTSUPP) { // a kernel without bridges
		return nil, nil
	}
	return list, err
}

// notThere are states of entries that stand for no host.
const notThere = unix.NUD_FAILED | unix.NUD_INCOMPLETE | unix.NUD_NOARP

func neighbourOf(s *space, source Source, n *netlink.Neigh) (out Neighbour, ok bool) {
	out = Neighbour{Netns: s.name, IfIndex: uint32(n.LinkIndex), Source: source}
	if a, ok := netip.AddrFromSlice(n.IP); ok {
		out.Addr = a.Unmap()
	}
	if len(n.HardwareAddr) > 0 {
		out.MAC = n.HardwareAddr.String()
	}
	switch {
	case source == FDB && out.Addr.IsValid(): // of a VXLAN
		out.Source = Tunnel
		if isZero(n.HardwareAddr) { // where everything unknown goes
			out.MAC = ""
		}
		return out, !out.Addr.IsMulticast()
	case source == FDB && n.State&unix.NUD_PERMANENT != 0: // an address of the bridge or of its port
		return out, false
	case len(n.HardwareAddr) == 0 || isZero(n.HardwareAddr) || n.HardwareAddr[0]&1 != 0:
		return out, false
	}
	return out, source == FDB || n.State&notThere == 0 && out.Addr.IsValid() && !out.Addr.IsMulticast()
}

func isZero(mac net.HardwareAddr) bool {
	for _, b := range mac {
		if b != 0 {
			return false
		}
	}
	return true
}

// notices are groups of messages about what a Graph shows besides links.
var notices = []uint{unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR}

// notice counts changes until the subscription is closed. What changed is read with the graph.
func (sub subscription) notice(r *Registry) {
	for {
		_, _, err := sub.socket.Receive()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		r.mu.Lock()
		r.touched++
		r.mu.Unlock()
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return // the subscription to links reports what is wrong with the namespace
		}
	}
}

// Touched counts changes of what a Graph shows since the registry was made; some are none.
func (r *Registry) Touched() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.touched
}

// Traffic reads the kernel's counters of all interfaces, at one moment for each namespace.
func (r *Registry) Traffic() (map[flow.Port]Counters, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := map[flow.Port]Counters{}
	for number, s := range r.spaces {
		if s.number != number {
			continue
		}
		links, err := whole(s.handle.LinkList)
		if err != nil {
			return nil, err
		}
		for _, l := range links {
			all[flow.Port{Netns: s.name, IfIndex: uint32(l.Attrs().Index)}] = countersOf(l)
		}
	}
	return all, nil
}
