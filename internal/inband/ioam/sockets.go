package ioam

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
)

// sockets are raw ones, in the namespaces of interfaces. They are opened with the first interface, while the agent has
// the privilege.
type sockets struct {
	fds map[uint32]int // by namespace; -1: not allowed
	err error          // why one is missing
}

// join opens the socket of the namespace of an interface.
func (s *sockets) join(t *datapath.Target, what string, open func() (int, error)) {
	netns := t.Iface.Netns()
	if _, ok := s.fds[netns]; ok {
		return
	}
	if s.fds == nil {
		s.fds = map[uint32]int{}
	}
	fd := -1
	err := t.Do(func() (err error) {
		fd, err = open()
		return err
	})
	if err != nil {
		s.err = fmt.Errorf("opening a socket to %s: %w", what, err)
	}
	s.fds[netns] = fd
}

// leave closes the socket of a namespace that has no interface left.
func (s *sockets) leave(netns uint32) {
	if fd, ok := s.fds[netns]; ok && fd >= 0 {
		_ = unix.Close(fd)
	}
	delete(s.fds, netns)
}

func (s *sockets) close() {
	for netns := range s.fds {
		s.leave(netns)
	}
	s.fds = nil
}
