package topology

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Segments are the counters of TCP of a network namespace, since it was made.
type Segments struct {
	Netns               string
	Sent, Retransmitted uint64 // Sent: without those that were sent again
}

// maxSegments is how many namespaces are read: each takes a system call or five.
const maxSegments = 64

// Segments reads the counters of watched namespaces. Those that cannot be read are left out.
func (r *Registry) Segments() (list []Segments) {
	for number, name := range r.named() {
		s := Segments{Netns: name}
		err := r.InNetns(number, func() error {
			text, err := os.ReadFile("/proc/thread-self/net/snmp")
			if err != nil {
				return err
			}
			s.Sent, s.Retransmitted, err = parseSegments(text)
			return err
		})
		if err == nil {
			list = append(list, s)
		}
	}
	return list
}

// named are the numbers of watched namespaces with their names.
func (r *Registry) named() map[uint32]string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := map[uint32]string{}
	for _, number := range slices.Sorted(maps.Keys(r.spaces)) {
		if s := r.spaces[number]; s.number == number && len(out) < maxSegments {
			out[number] = s.name
		}
	}
	return out
}

// parseSegments reads OutSegs and RetransSegs of /proc/net/snmp: a line of names, and one of values.
func parseSegments(text []byte) (sent, again uint64, err error) {
	var names [][]byte
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || string(fields[0]) != "Tcp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		values := map[string]uint64{}
		for i := range min(len(names), len(fields)) {
			if n, err := strconv.ParseUint(string(fields[i]), 10, 64); err == nil {
				values[string(names[i])] = n
			}
		}
		return values["OutSegs"], values["RetransSegs"], nil
	}
	return 0, 0, errors.New("no counters of TCP in /proc/net/snmp")
}

// Connection is an open TCP connection.
type Connection struct {
	Local, Remote       netip.AddrPort
	Sent, Retransmitted uint64 // segments with data, since it was opened
	Timeouts            int    // after which something was sent again, since the last answer
	Open                int    // connections to the same remote end, with this one
}

// Connections asks the kernel for the TCP connections of a namespace in which something was sent
// again.
func (r *Registry) Connections(netns string) (list []Connection, err error) {
	for number, name := range r.named() {
		if name != netns {
			continue
		}
		err = r.InNetns(number, func() error {
			for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
				all, err := netlink.SocketDiagTCPInfo(family)
				if err != nil {
					return fmt.Errorf("list TCP connections: %w", err)
				}
				list = appendConnections(list, all)
			}
			return nil
		})
		return list, err
	}
	return nil, fmt.Errorf("network namespace %q is not watched", netns)
}

// opens are the states in which something is sent, and may be answered: SYN_SENT, ESTABLISHED, FIN_WAIT1, CLOSE_WAIT and LAST_ACK.
var opens = map[uint8]bool{netlink.TCP_SYN_SENT: true, netlink.TCP_ESTABLISHED: true, netlink.TCP_FIN_WAIT1: true, netlink.TCP_CLOSE_WAIT: true, netlink.TCP_LAST_ACK: true}

func appendConnections(list []Connection, all []*netlink.InetDiagTCPInfoResp) []Connection {
	open := map[netip.AddrPort]int{}
	for _, one := range all {
		if one.InetDiagMsg == nil || !opens[one.InetDiagMsg.State] {
			continue
		}
		if remote, ok := netip.AddrFromSlice(one.InetDiagMsg.ID.Destination); ok {
			open[netip.AddrPortFrom(remote.Unmap(), one.InetDiagMsg.ID.DestinationPort)]++
		}
	}
	for _, one := range all {
		if one.TCPInfo == nil || one.InetDiagMsg == nil || one.TCPInfo.Total_retrans == 0 {
			continue
		}
		id := &one.InetDiagMsg.ID
		local, okLocal := netip.AddrFromSlice(id.Source)
		remote, okRemote := netip.AddrFromSlice(id.Destination)
		if okLocal && okRemote {
			far := netip.AddrPortFrom(remote.Unmap(), id.DestinationPort)
			list = append(list, Connection{
				netip.AddrPortFrom(local.Unmap(), id.SourcePort), far,
				uint64(one.TCPInfo.Data_segs_out), uint64(one.TCPInfo.Total_retrans), int(one.TCPInfo.Retransmits), open[far],
			})
		}
	}
	return list
}

// Speed is what the driver of a physical interface says of its link, in bit/s; 0: nothing, or the
// interface is virtual and its speed a name only.
func (r *Registry) Speed(netns, iface string) (speed uint64) {
	for _, l := range r.Links() {
		if l.Name != iface || l.Netns != netns || l.Kind != "physical" {
			continue
		}
		if r.InNetns(l.NetnsNumber, func() (err error) {
			speed, err = linkSpeed(iface)
			return err
		}) != nil {
			return 0
		}
	}
	return speed
}

// ethtoolCmd is struct ethtool_cmd of linux/ethtool.h.
type ethtoolCmd struct {
	cmd, supported, advertising uint32
	speed                       uint16
	duplex, port, phy, transceiver, autoneg,
	mdio uint8
	maxTx, maxRx uint32
	speedHigh    uint16
	_            [2]uint8
	_            [3]uint32
}

const (
	ethtoolGetSettings = 1         // ETHTOOL_GSET
	speedUnknown       = 1<<32 - 1 // SPEED_UNKNOWN
	megabit            = 1_000_000
)

func linkSpeed(iface string) (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	settings := ethtoolCmd{cmd: ethtoolGetSettings}
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(request.name[:unix.IFNAMSIZ-1], iface)
	request.data = unsafe.Pointer(&settings)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return 0, fmt.Errorf("speed of %s: %w", iface, errno)
	}
	mbit := uint32(settings.speedHigh)<<16 | uint32(settings.speed)
	if mbit == speedUnknown || mbit == 1<<16-1 {
		return 0, nil
	}
	return uint64(mbit) * megabit, nil
}
