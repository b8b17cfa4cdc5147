package hints

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of the generic netlink family "netdev" (Documentation/netlink/specs/netdev.yaml).
const (
	netdevFamily     = "netdev"
	netdevCmdDevGet  = 1
	netdevIfIndex    = 1
	netdevXDP        = 3
	netdevRxMetadata = 5

	netdevXDPBasic   = 1 << 0
	netdevXDPXmit    = 1 << 2
	netdevXDPXmitAll = 1 << 6
)

// ErrNotReported: the kernel does not say what drivers offer.
var ErrNotReported = errors.New("the kernel does not report hints (Linux 6.7 does)")

// genlHeader is struct genlmsghdr. That of the library leaves in the reserved bytes what was in memory, which
// families with strict checks refuse.
type genlHeader [nl.SizeofGenlmsg]byte

func (genlHeader) Len() int            { return nl.SizeofGenlmsg }
func (h genlHeader) Serialize() []byte { return h[:] }

// netdev is what the family reports of an interface.
type netdev struct {
	Native bool  // the driver runs XDP programs
	Sends  Sends // frames of other drivers
	Hints  Offer // for programs that are bound to the device
}

// Sends says which frames of other drivers a driver sends (ndo_xdp_xmit).
type Sends struct {
	Frames bool
	Parts  bool // also those in several buffers
}

// SendsOf asks about an interface of the calling thread's namespace. It takes Linux 6.3.
func SendsOf(ifindex int) (Sends, error) {
	n, err := queryNetdev(ifindex)
	if errors.Is(err, ErrNotReported) { // of hints
		err = nil
	}
	return n.Sends, err
}

// queryNetdev asks about an interface of the calling thread's namespace.
func queryNetdev(ifindex int) (netdev, error) {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if errors.Is(err, unix.ENOENT) {
		return netdev{}, ErrNotReported
	}
	if err != nil {
		return netdev{}, fmt.Errorf("asking for the netlink family %s: %w", netdevFamily, err)
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	req.AddData(genlHeader{netdevCmdDevGet, byte(family.Version)})
	req.AddData(nl.NewRtAttr(netdevIfIndex, nl.Uint32Attr(uint32(ifindex))))
	messages, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return netdev{}, fmt.Errorf("asking netlink for the hints of interface %d: %w", ifindex, err)
	}
	for _, m := range messages {
		if len(m) < nl.SizeofGenlmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
		if err != nil {
			return netdev{}, fmt.Errorf("reading netlink's answer for interface %d: %w", ifindex, err)
		}
		return parseNetdev(attrs)
	}
	return netdev{}, ErrNotReported
}

func parseNetdev(attrs []syscall.NetlinkRouteAttr) (n netdev, err error) {
	err = ErrNotReported // unless hints are in the answer, which those of Linux 6.3 to 6.6 lack
	for _, a := range attrs {
		if len(a.Value) < 8 {
			continue
		}
		value := binary.NativeEndian.Uint64(a.Value)
		switch a.Attr.Type & nl.NLA_TYPE_MASK {
		case netdevXDP:
			n.Native = value&netdevXDPBasic != 0
			n.Sends = Sends{Frames: value&netdevXDPXmit != 0, Parts: value&netdevXDPXmitAll != 0}
		case netdevRxMetadata:
			n.Hints, err = Offer(value), nil
		}
	}
	return n, err
}
