package capture

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/internal/flow"
)

// errLinkType is of frames whose link header is not known.
var errLinkType = errors.New("unknown link type")

// fromFile is a frame of a file and where it was seen.
func fromFile(c *capfile.Frame) (frame, place, error) {
	f := frame{data: c.Data, length: c.Length}
	at := place{iface: flow.NewIface(0, uint32(c.Iface))}
	if c.Direction == capfile.Outbound {
		at.direction = flow.Egress
	}
	switch {
	case c.Link == capfile.LinkEthernet:
	case c.Link.IP():
		f.link = linkNone
	case c.Link == capfile.LinkLinuxCooked:
		cookedV1(&f, &at)
	case c.Link == capfile.LinkCookedV2:
		cookedV2(&f, &at)
	default:
		return f, at, fmt.Errorf("%w %d", errLinkType, c.Link)
	}
	return f, at, nil
}

// cookedV1 takes off the header that Linux puts in place of the real one in a
// capture of all interfaces: packet type, ARPHRD type, address, EtherType.
func cookedV1(f *frame, at *place) {
	const header = 16
	if len(f.data) < header {
		f.data = nil // counts as truncated
		return
	}
	h := f.data[:header]
	at.direction = directionOf(binary.BigEndian.Uint16(h))
	f.cooked(header, binary.BigEndian.Uint16(h[2:]), binary.BigEndian.Uint16(h[14:]))
}

// cookedV2 also finds the interface: EtherType, two bytes of zero, ifindex,
// ARPHRD type, packet type, address.
func cookedV2(f *frame, at *place) {
	const header = 20
	if len(f.data) < header {
		f.data = nil
		return
	}
	h := f.data[:header]
	at.iface = flow.NewIface(0, flow.Iface(binary.BigEndian.Uint32(h[4:])).IfIndex())
	at.direction = directionOf(uint16(h[10]))
	f.cooked(header, binary.BigEndian.Uint16(h[8:]), binary.BigEndian.Uint16(h))
}

func directionOf(packetType uint16) flow.Direction {
	if packetType == unix.PACKET_OUTGOING {
		return flow.Egress
	}
	return flow.Ingress
}

// cooked takes n bytes off in front. What was on the wire is known of Ethernet;
// other link headers count as none.
func (f *frame) cooked(n int, arphrd, etherType uint16) {
	f.link, f.etherType = linkCooked, etherType
	f.data, f.length = f.data[n:], f.length-n
	if arphrd == unix.ARPHRD_ETHER || arphrd == unix.ARPHRD_LOOPBACK {
		f.outside = etherLen
	}
}
