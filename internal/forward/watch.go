package forward

import (
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
)

// watch are sockets that tell of changes in a network namespace.
type watch struct {
	sockets []*nl.NetlinkSocket
	ended   atomic.Bool
	dirty   atomic.Bool // links, VLANs or stations have changed

	upper      *upper // nil: not known yet
	bridgesOff string // why frames of bridges are left to the kernel; empty: they are not
}

// watch has changes in the namespace of an interface be followed at once. What cannot be watched is followed within a second.
func (f *Forwarder) watch(t *datapath.Target) *watch {
	if w := f.watched[t.Netns]; w != nil {
		return w
	}
	w := &watch{}
	f.watched[t.Netns] = w
	_ = t.Do(func() error {
		w.add(subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_BRVLAN, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE))
		w.add(subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES))
		family, err := netlink.GenlFamilyGet("netdev")
		if err != nil {
			return err
		}
		for _, g := range family.Groups {
			if g.Name == "mgmt" {
				w.add(subscribe(unix.NETLINK_GENERIC, int(g.ID)))
			}
		}
		return nil
	})
	for _, s := range w.sockets {
		f.watches.Go(func() { f.listen(w, s) })
	}
	return w
}

// subscribe is nl.Subscribe() for groups beyond 32, too.
func subscribe(protocol int, groups ...int) (*nl.NetlinkSocket, error) {
	s, err := nl.Subscribe(protocol)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		if err := unix.SetsockoptInt(s.GetFd(), unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (w *watch) add(s *nl.NetlinkSocket, err error) {
	if err == nil {
		w.sockets = append(w.sockets, s)
	}
}

// listen pokes at each change, until the socket is closed.
func (f *Forwarder) listen(w *watch, s *nl.NetlinkSocket) {
	for {
		messages, _, err := s.Receive()
		if w.ended.Load() || errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EBADF) {
			return
		}
		if err == nil && !slices.ContainsFunc(messages, matters) {
			continue
		}
		w.dirty.Store(true)
		select {
		case f.poke <- struct{}{}:
		default: // a change waits already
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// matters reports whether a message tells of more than a neighbour, of which the kernel's tables know.
func matters(m syscall.NetlinkMessage) bool {
	isNeighbour := m.Header.Type == unix.RTM_NEWNEIGH || m.Header.Type == unix.RTM_DELNEIGH
	return !isNeighbour || len(m.Data) > 0 && m.Data[0] == unix.AF_BRIDGE
}

// unwatch ends with a namespace in which no port is left.
func (f *Forwarder) unwatch(netns uint32) {
	for _, p := range f.ports {
		if p.attached && p.hook.Target.Netns == netns {
			return
		}
	}
	f.endWatch(netns)
}

func (f *Forwarder) endWatch(netns uint32) {
	w := f.watched[netns]
	if w == nil {
		return
	}
	delete(f.watched, netns)
	w.ended.Store(true)
	for _, s := range w.sockets {
		s.Close()
	}
}
