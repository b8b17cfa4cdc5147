package kafka

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/export/ownsocket"
)

// Sockets gives the program sockets that have the agent's mark, which takes a capability that the program does not have.
type Sockets struct{ to *net.UnixConn }

// NewSockets connects a pair; theirs is for the program, as pipe.SocketFile.
func NewSockets() (s *Sockets, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	ours := os.NewFile(uintptr(pair[0]), "sockets")
	defer ours.Close()
	theirs = os.NewFile(uintptr(pair[1]), "sockets")
	c, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("socketpair: %w", err), theirs.Close())
	}
	to, ok := c.(*net.UnixConn)
	if !ok {
		return nil, nil, errors.Join(errors.New("socketpair: not of unix sockets"), c.Close(), theirs.Close())
	}
	return &Sockets{to}, theirs, nil
}

// Give answers each byte, 4 or 6, with a socket of that family, until the other end is closed.
func (s *Sockets) Give() {
	defer s.to.Close()
	for b := make([]byte, 1); ; {
		if n, err := s.to.Read(b); err != nil || n != 1 {
			return
		}
		family := unix.AF_INET
		if b[0] == 6 {
			family = unix.AF_INET6
		}
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return // the program reports that it gets none
		}
		ownsocket.Set(fd)
		_, _, err = s.to.WriteMsgUnix(b, unix.UnixRights(fd), nil)
		_ = unix.Close(fd)
		if err != nil {
			return
		}
	}
}

// Close ends Give.
func (s *Sockets) Close() { _ = s.to.Close() }
