package topology

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
)

// newLink turns what netlink says of a link into ours.
func newLink(s *space, l netlink.Link) Link {
	a := l.Attrs()
	iface, _ := ifaceOf(s, a.Index)
	return Link{
		Iface: iface, Name: a.Name, Netns: s.name, IfIndex: uint32(a.Index),
		Kind: kindOf(l), LinkType: a.EncapType, MTU: a.MTU,
		Up: a.Flags&net.FlagUp != 0, MAC: a.HardwareAddr.String(),
	}
}

// ifaceOf packs namespace and index; an index that does not fit is refused.
func ifaceOf(s *space, index int) (flow.Iface, error) {
	if index <= 0 || index > MaxIfIndex {
		return 0, fmt.Errorf("%w: %d", ErrIfIndex, index)
	}
	return flow.NewIface(s.number, uint32(index)), nil
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

// dumpLinks lists all links; a dump that changes under way is taken again.
func dumpLinks(h *netlink.Handle) ([]netlink.Link, error) {
	for range 10 {
		links, err := h.LinkList()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return links, err
		}
	}
	return nil, errors.New("list links: the list changed during ten readings")
}

// update is what a subscription tells the Watcher: links that changed, or the
// error that ended it.
type update struct {
	from    *subscription
	changes []change
	err     error
}

type change struct {
	link netlink.Link
	gone bool
}

// subscription receives the link events of one namespace.
type subscription struct {
	space  *space
	socket *nl.NetlinkSocket
}

// subscribe opens a subscription with a receive buffer of rcvbuf octets.
func subscribe(s *space, rcvbuf int) (*subscription, error) {
	sub := &subscription{space: s}
	err := s.ns.Do(func() (err error) {
		sub.socket, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to links of network namespace %q: %w", s.name, err)
	}
	if rcvbuf != 0 {
		// A small buffer only means an earlier resync.
		_ = sub.socket.SetReceiveBufferSize(rcvbuf, false)
	}
	return sub, nil
}

// listen passes updates on until the socket is closed or fails, or stop is closed.
func (sub *subscription) listen(out chan<- update, stop <-chan struct{}) {
	for {
		u := update{from: sub}
		msgs, from, err := sub.socket.Receive()
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil:
			u.err = err
		case from.Pid != nl.PidKernel:
			continue
		default:
			u.changes = parseChanges(msgs)
		}
		select {
		case out <- u:
		case <-stop:
			return
		}
		if u.err != nil {
			return
		}
	}
}
