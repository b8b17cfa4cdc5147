package topology

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// update is what a subscription tells the Watcher: links that changed, that some
// changes were lost, or the error that ended it.
type update struct {
	from    *member
	changes []change
	lost    bool
	err     error
}

type change struct {
	link netlink.Link
	gone bool
}

// subscription receives the link events of one namespace. Once it is open, it
// takes no privilege, not even to recover from an overflow.
type subscription struct {
	socket *nl.NetlinkSocket
}

// subscribe opens a subscription to groups of messages with a receive buffer of rcvbuf bytes.
func subscribe(s *space, rcvbuf int, groups ...uint) (subscription, error) {
	var sub subscription
	err := s.ns.Do(func() (err error) {
		sub.socket, err = nl.Subscribe(unix.NETLINK_ROUTE, groups...)
		return err
	})
	if err != nil {
		return sub, fmt.Errorf("subscribe to changes in network namespace %q: %w", s.name, err)
	}
	// A smaller buffer only means that links are listed again earlier.
	_ = sub.socket.SetReceiveBufferSize(rcvbuf, false)
	return sub, nil
}

func (sub subscription) close() { sub.socket.Close() }

// listen passes updates of m on until the subscription is closed or fails, or stop
// is closed.
func (sub subscription) listen(m *member, out chan<- update, stop <-chan struct{}) {
	for {
		u := update{from: m}
		msgs, from, err := sub.socket.Receive()
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case errors.Is(err, unix.ENOBUFS):
			u.lost = true
			u.err = sub.drain()
		case err != nil:
			u.err = fmt.Errorf("receive link events of network namespace %q: %w", m.name, err)
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

// drain discards events from before the overflow: after a fresh list of links, they
// would restore links that are gone.
func (sub subscription) drain() error {
	const empty, patience = time.Millisecond, time.Second
	wait := unix.NsecToTimeval(int64(empty))
	if err := sub.socket.SetReceiveTimeout(&wait); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		_, _, err := sub.socket.Receive()
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("drain link events: %w", err)
		}
	}
	return sub.socket.SetReceiveTimeout(&unix.Timeval{})
}
