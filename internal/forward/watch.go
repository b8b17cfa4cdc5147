package forward

import (
	"errors"
	"os"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
)

// watch are sockets that tell of changes in a network namespace.
type watch struct {
	sockets []*nl.NetlinkSocket
	ended   atomic.Bool
}

// watch has changes in the namespace of an interface be followed at once. What cannot be watched is followed within a second.
func (f *Forwarder) watch(t *datapath.Target) {
	if f.watched[t.Netns] != nil {
		return
	}
	w := &watch{}
	f.watched[t.Netns] = w
	_ = t.Do(func() error {
		w.add(nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK))
		w.add(nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES))
		family, err := netlink.GenlFamilyGet("netdev")
		if err != nil {
			return err
		}
		for _, g := range family.Groups {
			if g.Name == "mgmt" {
				w.add(nl.Subscribe(unix.NETLINK_GENERIC, uint(g.ID)))
			}
		}
		return nil
	})
	for _, s := range w.sockets {
		f.watches.Go(func() { f.listen(w, s) })
	}
}

func (w *watch) add(s *nl.NetlinkSocket, err error) {
	if err == nil {
		w.sockets = append(w.sockets, s)
	}
}

// listen pokes at each change, until the socket is closed.
func (f *Forwarder) listen(w *watch, s *nl.NetlinkSocket) {
	for {
		_, _, err := s.Receive()
		if w.ended.Load() || errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EBADF) {
			return
		}
		select {
		case f.poke <- struct{}{}:
		default: // a change waits already
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
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
