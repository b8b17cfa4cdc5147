package lab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/topology"
)

// build makes everything that newLab planned.
func (l *Lab) build() error {
	namespaces := l.hosts
	if l.wire != nil {
		namespaces = append(l.Hosts(), l.wire)
	}
	for _, h := range namespaces {
		if err := AddNetns(h.Netns); err != nil {
			return err
		}
		if err := h.Do(func() error { return writeSysctls(l.sysctls(h)) }); err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
	}
	for _, h := range l.hosts {
		for _, i := range h.Interfaces {
			if err := l.addLink(h, i); err != nil {
				return fmt.Errorf("link from %s to %s: %w", h.Name, i.Peer, err)
			}
		}
	}
	for _, step := range []func(*Host) error{setLinksUp, waitForCarrier, addAddresses, waitForAddresses} {
		for _, h := range namespaces {
			if err := h.Do(func() error { return step(h) }); err != nil {
				return fmt.Errorf("host %s: %w", h.Name, err)
			}
		}
	}
	for _, h := range l.hosts {
		if err := h.Do(func() error { return addRoutes(routes(l.hosts, h)) }); err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
	}
	for name, delay := range l.cfg.Slow {
		if err := l.Host(name).Slow(delay); err != nil {
			return err
		}
	}
	return nil
}

// sysctls are set in the host's namespace before it has links: default becomes
// what each new link starts with.
func (l *Lab) sysctls(h *Host) [][2]string {
	if h == l.wire {
		// The relay's ends of the links are wires: they say nothing of their own.
		return [][2]string{{"ipv6/conf/all/disable_ipv6", "1"}, {"ipv6/conf/default/disable_ipv6", "1"}}
	}
	forward := "0"
	if len(h.Interfaces) > 1 {
		forward = "1"
	}
	set := [][2]string{{"ipv4/ip_forward", forward}, {"ipv6/conf/all/forwarding", forward}}
	for _, conf := range []string{"all", "default"} {
		set = append(set,
			[2]string{"ipv6/conf/" + conf + "/disable_ipv6", "0"},
			// Addresses are ours and unique: usable at once, not after a second of detection.
			[2]string{"ipv6/conf/" + conf + "/accept_dad", "0"},
			[2]string{"ipv6/conf/" + conf + "/dad_transmits", "0"},
			// Routes are static.
			[2]string{"ipv6/conf/" + conf + "/accept_ra", "0"},
			[2]string{"ipv6/conf/" + conf + "/router_solicitations", "0"},
			[2]string{"ipv4/conf/" + conf + "/rp_filter", "0"},
		)
	}
	return set
}

// writeSysctls writes below /proc/sys/net, which shows the namespace of the
// thread that opens it.
func writeSysctls(set [][2]string) error {
	for _, s := range set {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", s[0]), []byte(s[1]), 0); err != nil {
			return fmt.Errorf("set sysctl net/%s to %s: %w", s[0], s[1], err)
		}
	}
	return nil
}

// addLink makes the link of a host's interface, both ends in their namespaces
// and with their last names at once, so that a crash leaves nothing outside.
// The second host of a link finds it made.
func (l *Lab) addLink(h *Host, i Interface) error {
	peer := l.Host(i.Peer)
	far := peer.interfaceTo(h.Name)
	farNetns, farName, farMAC := peer.Netns, far.Name, far.MAC
	if l.wire != nil {
		// The relay's end of the link is named after the host it leads to.
		farNetns, farName, farMAC = l.wire.Netns, "to-"+h.Name, nil
	} else if i.side == 2 {
		return nil
	}
	ns, err := topology.OpenNetns(farNetns)
	if err != nil {
		return err
	}
	defer ns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = i.Name, l.cfg.MTU, i.MAC
	// The kernel tells a carrier at once only of links whose ends have different
	// indexes (linkwatch), else up to a second late. The far end gets the lowest.
	attrs.Index = 10*i.link + i.side
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr = farName, farMAC
	veth.PeerMTU = uint32(l.cfg.MTU)
	veth.PeerNamespace = netlink.NsFd(ns.Fd())
	return h.Do(func() error { return netlink.LinkAdd(veth) })
}

// The steps below run in the namespace of their host.

func setLinksUp(*Host) error {
	links, err := topology.Links()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, link := range links {
		if link.Type() == "veth" || link.Attrs().Flags&net.FlagLoopback != 0 {
			if err := netlink.LinkSetUp(link); err != nil {
				return fmt.Errorf("set %s up: %w", link.Attrs().Name, err)
			}
		}
	}
	return nil
}

// The kernel tells carrier and new addresses to IPv6 in work queues: an address
// given before the carrier would be tentative, one used before its work is done
// unreachable. So both are waited for.

func waitForCarrier(*Host) error {
	return poll(func() (string, error) {
		links, err := topology.Links()
		if err != nil {
			return "", fmt.Errorf("list links: %w", err)
		}
		for _, link := range links {
			if link.Type() == "veth" && link.Attrs().OperState != netlink.OperUp {
				return "carrier of link " + link.Attrs().Name, nil
			}
		}
		return "", nil
	})
}

func waitForAddresses(h *Host) error {
	return poll(func() (string, error) {
		for _, i := range h.Interfaces {
			for _, a := range []netip.Prefix{i.Addr4, i.Addr6} {
				routes, err := netlink.RouteGet(a.Addr().AsSlice())
				if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_LOCAL {
					return fmt.Sprintf("address %s on %s", a.Addr(), i.Name), nil
				}
			}
		}
		return "", nil
	})
}

// poll asks until nothing is missing any more.
func poll(missing func() (string, error)) error {
	const patience = 10 * time.Second
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		what, err := missing()
		if err != nil || what == "" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not there after %v", what, patience)
		}
	}
}

func addAddresses(h *Host) error {
	for _, i := range h.Interfaces {
		link, err := netlink.LinkByName(i.Name)
		if err != nil {
			return fmt.Errorf("find %s: %w", i.Name, err)
		}
		for _, a := range []netip.Prefix{i.Addr4, i.Addr6} {
			addr := &netlink.Addr{IPNet: ipNet(a)}
			if a.Addr().Is6() {
				addr.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return fmt.Errorf("add %s to %s: %w", a, i.Name, err)
			}
		}
	}
	return nil
}

func addRoutes(routes []route) error {
	for _, r := range routes {
		err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(r.to), Gw: r.via.Addr().AsSlice()})
		if err != nil {
			return fmt.Errorf("add route to %s via %s: %w", r.to, r.via.Addr(), err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// checkPrivilege tells what is missing before anything is made.
func checkPrivilege() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&hdr, &sets[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	const need = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_NET_ADMIN
	if sets[0].Effective&need != need {
		return fmt.Errorf("%w: network namespaces and links need CAP_SYS_ADMIN and CAP_NET_ADMIN: run as root", ErrPrivilege)
	}
	return nil
}
