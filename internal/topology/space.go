package topology

import (
	"net"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/flow"
)

// newLink turns what netlink says of a link into ours.
func newLink(s *space, l netlink.Link) Link {
	a := l.Attrs()
	iface, _ := ifaceOf(s, a.Index)
	return Link{
		Iface: iface, Name: a.Name, Netns: s.name, IfIndex: uint32(a.Index),
		Kind: kindOf(l), LinkType: a.EncapType, MTU: a.MTU,
		Up: a.Flags&net.FlagUp != 0, MAC: a.HardwareAddr.String(), NetnsNumber: s.number,
	}
}

// ifaceOf packs namespace and index. A large index must have been admitted.
func ifaceOf(s *space, index int) (iface flow.Iface, ok bool) {
	number, block := s.number, uint32(index)>>ifIndexBits
	if block != 0 {
		if number, ok = s.blocks[block]; !ok {
			return 0, false
		}
	}
	return flow.NewIface(number, uint32(index)&MaxIfIndex), index > 0
}

// indexOf is the index of an interface of s.
func (s *space) indexOf(i flow.Iface) uint32 {
	for block, number := range s.blocks {
		if number == i.Netns() {
			return block<<ifIndexBits | i.IfIndex()
		}
	}
	return i.IfIndex()
}

// kindOf is the rtnetlink kind; devices without one are hardware or loopback.
func kindOf(l netlink.Link) string {
	switch {
	case l.Type() == "tuntap":
		return "tun"
	case l.Type() != "device":
		return l.Type()
	case l.Attrs().Flags&net.FlagLoopback != 0:
		return "loopback"
	}
	return "physical"
}
