package forward

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/hints"
)

// examined is what an interface can do, as the kernel says now.
type examined struct {
	port   abiForwardPort // without its number
	index  uint32
	off    string // why packets that arrive are not forwarded; empty: they are
	closed string // why none are sent
	only   string // why only flows of flow tables are forwarded; empty: all are
	bridge string // that it is a port of
	routes string // the interface that routes what arrives without a tag; empty: itself
}

// Ability is what an interface can do for packets that XDP sends on.
type Ability struct {
	Index  uint32
	MAC    [6]byte
	Flags  uint32 // enum forward_flag
	Off    string // why XDP sends none on that arrive; empty: it does
	Closed string // why none can leave by it
}

// Examine asks what the interface of a hook can do now. The caller is in its namespace.
func Examine(h datapath.Hook) (Ability, error) {
	e, err := examine(h, passing{})
	if e.bridge != "" && e.off == "" {
		e.off = belongs(e.bridge)
		e.closed, e.port.Flags = e.off, 0
	}
	return Ability{Index: e.index, MAC: e.port.Mac, Flags: e.port.Flags, Off: e.off, Closed: e.closed}, err
}

// FreePlace finds a place of a table of interfaces where programs look for one.
func FreePlace(iface uint32, taken map[uint32]bool) (uint32, error) {
	for i := range ways {
		if n := (iface + i) % places; !taken[n] && len(taken) < most {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%d interfaces are there already: there is no place for another", len(taken))
}

// examine asks about an interface. The caller is in its namespace.
func examine(h datapath.Hook, here passing) (e examined, err error) {
	l, err := netlink.LinkByName(h.Target.Name)
	if err != nil {
		return e, fmt.Errorf("forwarding of %s: %w", h.Target.String(), err)
	}
	a := l.Attrs()
	e.index = uint32(a.Index)
	copy(e.port.Mac[:], a.HardwareAddr)
	if e.off, e.bridge, err = reason(h, l, here); e.off != "" || err != nil {
		e.closed = e.off
		return e, err
	}
	e.port.Flags = uint32(abiForwardFlagFORWARD_RECEIVES)
	if here.rules != "" {
		e.only = fmt.Sprintf("netfilter has rules (%s)", here.rules)
		e.port.Flags |= uint32(abiForwardFlagFORWARD_OFFLOADED)
	}
	for flag, is := range map[abiForwardFlag]func(netlink.Link) (bool, error){
		abiForwardFlagFORWARD_HIDES_TAGS: hidesTags, abiForwardFlagFORWARD_VIRTUAL: isVirtual, abiForwardFlagFORWARD_SOURCES: judgesSources,
		abiForwardFlagFORWARD_STRICT: func(l netlink.Link) (bool, error) { return isStrict(l.Attrs().Name) },
	} {
		yes, err := is(l)
		if err != nil {
			return e, err
		}
		if yes {
			e.port.Flags |= uint32(flag)
		}
	}
	sends, err := hints.SendsOf(a.Index)
	switch {
	case err != nil:
		return e, err
	case sends.Frames:
		e.port.Flags |= uint32(abiForwardFlagFORWARD_SENDS)
	case l.Type() == "veth":
		e.closed = fmt.Sprintf("the other end of this veth pair would lose frames of XDP: have it merge packets (ethtool -K %s gro on), or run a program at XDP there", peerName(a))
	default:
		e.closed = "its driver does not send frames of XDP: the kernel forwards to it"
	}
	if sends.Parts {
		e.port.Flags |= uint32(abiForwardFlagFORWARD_SENDS_PARTS)
	}
	return e, nil
}

// reason is why packets of an interface are not forwarded at XDP, if so, and the bridge that it is a port of.
func reason(h datapath.Hook, l netlink.Link, here passing) (why, bridge string, err error) {
	a := l.Attrs()
	switch {
	case h.Target.Early == datapath.ModeXDPGeneric:
		return "XDP runs behind the driver there (xdp-generic), where forwarding is no faster than the kernel's", "", nil
	case len(a.HardwareAddr) != len(abiForwardPort{}.Mac):
		return "it has no Ethernet address", "", nil
	case a.MasterIndex != 0:
		master, err := netlink.LinkByIndex(a.MasterIndex)
		if err != nil {
			return "", "", fmt.Errorf("forwarding of %s: its master: %w", a.Name, err)
		}
		switch master.Type() {
		case "vrf":
		case "bridge":
			bridge = master.Attrs().Name
		default:
			return belongs(master.Attrs().Name), "", nil
		}
	}
	if here.closed == "" && here.rules != "" && !here.devices[a.Name] {
		return here.bypassed() + ", or have a flow table of nftables with this device", bridge, nil
	}
	return here.closed, bridge, nil
}

func belongs(master string) string {
	return fmt.Sprintf("it is a port of %s, to which its packets belong", master)
}

// peerName is the other end of a veth pair, as far as it is known here.
func peerName(a *netlink.LinkAttrs) string {
	if a.NetNsID < 0 {
		if peer, err := netlink.LinkByIndex(a.ParentIndex); err == nil {
			return peer.Attrs().Name
		}
	}
	return "PEER"
}

// Bits of ETHTOOL_GFLAGS.
const ethFlagRxVLAN = 1 << 8

// hidesTags reports whether tagged frames may come without their tag. At veth the tag is where the sender left it.
func hidesTags(l netlink.Link) (bool, error) {
	if l.Type() == "veth" {
		return true, nil
	}
	flags, err := asked(func(fd int) (uint32, error) { return ethtoolFlags(fd, l.Attrs().Name) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	return flags&ethFlagRxVLAN != 0, err
}

// isVirtual reports whether packets may come without their checksum, since they never were on a wire.
func isVirtual(l netlink.Link) (bool, error) {
	info, err := asked(func(fd int) (*unix.EthtoolDrvinfo, error) { return unix.IoctlGetEthtoolDrvinfo(fd, l.Attrs().Name) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking %s for its driver: %w", l.Attrs().Name, err)
	}
	bus := unix.ByteSliceToString(info.Bus_info[:])
	return bus == "" || bus == "N/A" || unix.ByteSliceToString(info.Driver[:]) == "virtio_net", nil
}

// asked calls a driver, in the namespace of the calling thread.
func asked[T any](call func(fd int) (T, error)) (answer T, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return answer, err
	}
	defer unix.Close(fd)
	return call(fd)
}

// isStrict reports whether IPv4 packets have to come from where the route to their source leads (rp_filter).
func isStrict(iface string) (bool, error) {
	most := 0
	for _, which := range []string{"all", iface} {
		n, err := sysctl("ipv4", which, "rp_filter")
		if err != nil {
			return false, err
		}
		most = max(most, n)
	}
	return most == 1, nil
}

// judgesSources reports whether no IPv4 rule asks where a packet comes from: the way back to a source then depends on nothing
// else of a packet.
func judgesSources(netlink.Link) (bool, error) {
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	if errors.Is(err, unix.EOPNOTSUPP) { // the kernel has no rules
		return true, nil
	}
	return err == nil && !slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Src != nil }), err
}

// forwards are the versions of IP that the kernel forwards from an interface.
func forwards(name string) (v4, v6 bool) {
	n4, _ := sysctl("ipv4", name, "forwarding") // what is not there is off
	n6, _ := sysctl("ipv6", name, "forwarding")
	return n4 != 0, n6 != 0
}

func sysctl(family, iface, key string) (int, error) {
	b, err := os.ReadFile(filepath.Join("/proc/sys/net", family, "conf", iface, key))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(bytes.TrimSpace(b)))
}

// legacyTables are the tables of iptables that are not nftables'.
func legacyTables() (names []string, err error) {
	for _, file := range []string{"ip_tables_names", "ip6_tables_names"} {
		b, err := os.ReadFile(filepath.Join("/proc/thread-self/net", file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, table := range strings.Fields(string(b)) {
			names = append(names, strings.TrimSuffix(file, "_tables_names")+" "+table)
		}
	}
	return names, nil
}
